/* SPDX-License-Identifier: MIT */
/* prometheus.h: a report in Prometheus' text format
 * (https://prometheus.io/docs/instrumenting/exposition_formats). */
#ifndef HAK_OBSERVE_PROMETHEUS_H
#define HAK_OBSERVE_PROMETHEUS_H

#include "observe/report.h"

/* Figures that are unknown are left out. */
HAK_HIDDEN void hak__prometheus_write(hak_report_sink *sink, void *argument,
                                      const struct report *report);

#endif
