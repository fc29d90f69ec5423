// SPDX-License-Identifier: Apache-2.0
//
// The picture of a compilation: the graph as it was given, as it runs, and where its features lie.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// As SVG: nodes in rows, each below those it needs, without constants; in colour what the passes made, dashed what
/// they took away; below it the memory plan, where there is one. Of more than 300 nodes the first are drawn.
std::string CompilationPicture(const Graph& given, const Graph& compiled, const PassRecords& passes,
                               std::span<const PlannedBlock> plan);

/// The folder of REPRISE_GE_PICTURE; empty: no pictures.
const std::string& PictureFolder();
/// Writes PictureFolder()/NAME_NUMBER.svg, numbered within the process. What goes wrong is told in the log.
void WriteCompilationPicture(const Graph& given, const Executable& executable) noexcept;

}  // namespace reprise::compiler
