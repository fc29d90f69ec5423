/* SPDX-License-Identifier: Apache-2.0 */
/* The place where older build scripts look. */
#ifndef REPRISE_EXTERNAL_GE_GE_GRAPH_COMPILE_SUMMARY_H_
#define REPRISE_EXTERNAL_GE_GE_GRAPH_COMPILE_SUMMARY_H_

#include "ge/ge_graph_compile_summary.h"

#endif  // REPRISE_EXTERNAL_GE_GE_GRAPH_COMPILE_SUMMARY_H_
