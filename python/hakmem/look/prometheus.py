# SPDX-License-Identifier: MIT
"""The figures of processes in Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats)."""
import re

RESIDENT = ("in_use", "rounding", "thread_caches", "free_in_slabs", "kept", "tables", "not_hakmem")
MAPPED = ("in_use", "cached", "free_dirty", "free_in_slabs", "free_clean", "discarded")
FIGURES = {  # metrics that are one figure of a report
    "peak_rss_bytes": "summary.peak_rss_bytes", "swapped_bytes": "summary.swapped_bytes",
    "fragmentation_permille": "summary.fragmentation_permille", "huge_page_bytes": "huge_pages.bytes",
    "huge_page_in_use_permille": "huge_pages.in_use_permille", "split_superslabs": "huge_pages.split_count",
    "metadata_bytes": "totals.bytes_metadata", "objects_in_use": "totals.objects_in_use_count", "arenas": "totals.arenas_count",
    "arenas_parked": "totals.arenas_parked_count", "threads": "totals.threads_count", "superslabs": "totals.superslabs_count",
    "peak_mapped_bytes": "totals.peak_bytes_mapped", "peak_taken_bytes": "totals.peak_bytes_taken",
    "lock_waits_total": "locks.lock_waits"}
OF_CLASS = {"class_slab_bytes": ("slab_bytes", "address space of slabs"), "class_objects_in_use": ("in_use", "objects in use"),
            "class_objects_cached": ("cached", "free objects in thread caches"),
            "class_objects_free_in_slabs": ("in_slabs", "free objects in slabs"),
            "class_resident_bytes": ("resident", "resident bytes of slabs")}
OF_SITE = {"site_live_bytes": ("live_bytes", "bytes of blocks in use"), "site_live_blocks": ("live_count", "blocks in use"),
           "site_allocated_bytes_total": ("allocated_bytes", "bytes allocated")}
NAME = re.compile("[a-z0-9_]{1,100}")
HELP = re.compile("[ -~]{1,300}")
UP = "up", "1 if the process answers; 0 if it has ended or does not"  # of this tool


def read_helps(text):
    """{figure: help} of a process's answer to the request "names"."""
    lines = (line.split("\t") for line in text.split("\n"))
    return {words[0]: words[2] for words in lines if len(words) == 3 and HELP.fullmatch(words[2])}


def by(records, name, key):
    return {str(record.get(name)): record.get(key) for record in records}


def metrics_of(report, helps):
    """(metric, help, its samples: by the value of the label `label`, "": none) for each metric of a report."""
    def figure(metric, name):
        section, _, key = name.partition(".")
        return metric, helps.get(name, ""), "", {"": report.get(section, {}).get(key)}

    hakmem, summary, totals = report["hakmem"], report.get("summary", {}), report["totals"]
    huge = totals["huge_count"] - report.get("tiers", {}).get("huge_small_count", 0)
    yield "info", "hakmem serves this process; the label: its version", "version", {hakmem["version"]: 1}
    yield "process_id", "process id", "", {"": hakmem.get("process")}
    yield "huge_blocks", "huge blocks (above 2 MiB) in use", "", {"": huge}
    yield figure("rss_bytes", "summary.rss_bytes")
    yield ("resident_bytes", "what resident memory is used for; the sum is hakmem_rss_bytes", "part",
           {part: summary.get(f"{part}_bytes") for part in RESIDENT})
    yield ("mapped_bytes", "address space for user memory, resident or not", "part",
           {part: totals.get(f"bytes_{part}") for part in MAPPED})
    for metric, name in FIGURES.items():
        yield figure(metric, name)
    for key in report.get("counters", {}):
        yield figure(f"{key}_total", f"counters.{key}")
    yield "os_calls_total", "calls into the kernel", "call", report.get("os_calls", {})
    for metric, (key, text) in OF_CLASS.items():
        yield metric, f"{text}, by size class", "class", by(report.get("classes", []), "object_bytes", key)
    for metric, (key, text) in OF_SITE.items():
        yield metric, f"{text}, by named site, estimated from samples", "site", by(report.get("named_sites", []), "name", key)


def escape(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def prometheus(reports):
    """One text of the reports of several processes, each (name, report, helps) or None if the process is gone. The format wants
    all samples of a metric together, below its help and type. Unknown figures, and what is none, have no samples."""
    texts = {}  # lines by metric

    def put(metric, text, labels, number):
        if metric not in texts:
            kind = "counter" if metric.endswith("_total") else "gauge"
            texts[metric] = [f"# HELP hakmem_{metric} {text}"] * bool(text) + [f"# TYPE hakmem_{metric} {kind}"]
        texts[metric].append(f"hakmem_{metric}{{{labels}}} {number}")

    for pid, found in reports.items():
        put(*UP, f'pid="{pid}"', int(found is not None))
    for pid, found in reports.items():
        for metric, text, label, samples in metrics_of(*found[1:]) if found else ():
            for value, number in samples.items() if NAME.fullmatch(metric) else ():
                if type(number) is int and number >= 0:
                    own = f',{label}="{escape(value)}"' if label else ""
                    put(metric, text, f'pid="{pid}",name="{escape(found[0])}"{own}', number)
    return "".join(f"{line}\n" for lines in texts.values() for line in lines)
