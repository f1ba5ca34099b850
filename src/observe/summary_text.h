/* SPDX-License-Identifier: MIT */
/* summary_text.h: writes a summary: some twelve lines for people, or one section of fields. */
#ifndef HAK_OBSERVE_SUMMARY_TEXT_H
#define HAK_OBSERVE_SUMMARY_TEXT_H

#include "hakmem/stats.h"
#include "observe/report_writer.h"
#include "observe/site_list.h"
#include "observe/summary.h"

/* As text, with the sites that hold most if `sites` has any. Figures in MiB and in percent are
 * rounded so that their sums are exact, too. */
HAK_HIDDEN void hak__summary_write_text(struct report_writer *writer, const struct summary *summary,
                                        const struct hak_stats *stats,
                                        const struct site_list *sites);
/* As the section "summary". */
HAK_HIDDEN void hak__summary_write_fields(struct report_writer *writer,
                                          const struct summary *summary);

#endif
