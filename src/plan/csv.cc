// SPDX-License-Identifier: Apache-2.0
#include "plan/csv.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <iterator>

#include "plan/validate.h"

namespace reprise::plan {
namespace {

enum Column { kId, kLower, kUpper, kSize, kAlignment, kAt, kOffset, kColumns };
constexpr std::array<std::string_view, kColumns> kNames = {"id", "lower", "upper", "size", "alignment", "at", "offset"};

std::string_view TakeLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

std::vector<std::string_view> Split(std::string_view line) {
  std::vector<std::string_view> cells;
  for (;;) {
    const size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

Status Refuse(size_t line, std::string what) {
  return Error(kInvalidArgument, fmt::format("line {}: {}", line, what))
      .Hint("the first line is id,lower,upper,size[,alignment][,at][,offset]; each other line a buffer, in integers");
}

// Columns of the file, in its order.
StatusOr<std::vector<Column>> ReadHeader(std::string_view line) {
  std::vector<Column> columns;
  std::array<bool, kColumns> seen = {};
  for (const std::string_view cell : Split(line)) {
    int column = 0;
    while (column < kColumns && kNames[column] != cell) ++column;
    if (column == kColumns) return Refuse(1, fmt::format("there is no column '{:.60}'", cell));
    if (seen[column]) return Refuse(1, fmt::format("the column '{}' stands twice", cell));
    seen[column] = true;
    columns.push_back(static_cast<Column>(column));
  }
  for (int column = kId; column <= kSize; ++column) {
    if (!seen[column]) return Refuse(1, fmt::format("the column '{}' is missing", kNames[column]));
  }
  return columns;
}

// Empty cells of the columns that may be empty leave `value` as it is.
Status ReadNumber(std::string_view cell, Column column, size_t line, int64_t* value) {
  if (cell.empty() && column > kSize) return {};
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), *value);
  if (error == std::errc() && end == cell.data() + cell.size()) return {};
  return Refuse(line, fmt::format("'{:.60}' in column '{}' is no integer of 64 bits", cell, kNames[column]));
}

}  // namespace

StatusOr<File> ParseCsv(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<Column> columns, ReadHeader(TakeLine(text)));
  File file;
  Problem& problem = file.problem;
  Solution solution;
  bool is_solved = true;
  for (size_t number = 2; !text.empty(); ++number) {
    const std::string_view line = TakeLine(text);
    if (line.empty()) continue;
    const std::vector<std::string_view> cells = Split(line);
    if (cells.size() != columns.size()) {
      return Refuse(number, fmt::format("{} cells under {} columns", cells.size(), columns.size()));
    }
    std::array<int64_t, kColumns> values = {0, 0, 0, 0, 1, kAnywhere, kAnywhere};
    for (size_t i = 0; i < cells.size(); ++i) {
      if (columns[i] == kId) {
        problem.names.emplace_back(cells[i]);
      } else {
        REPRISE_RETURN_IF_ERROR(ReadNumber(cells[i], columns[i], number, &values[columns[i]]));
      }
    }
    problem.buffers.push_back({values[kLower], values[kUpper], values[kSize], values[kAlignment], values[kAt]});
    solution.offsets.push_back(values[kOffset]);
    is_solved = is_solved && values[kOffset] != kAnywhere;
  }
  REPRISE_RETURN_IF_ERROR(ToStatus(problem, nullptr, Check(problem)));
  if (is_solved && !solution.offsets.empty()) {
    for (const Bytes offset : solution.offsets) {
      if (offset > kMostBytes) return Error(kInvalidArgument, fmt::format("the offset {} is too large", offset));
    }
    solution.height = HeightOf(problem, solution.offsets);
    file.solution = std::move(solution);
  }
  return file;
}

std::string ToCsv(const Problem& problem, const Solution* solution) {
  bool has_alignment = false;
  bool has_at = false;
  for (const Buffer& buffer : problem.buffers) {
    has_alignment = has_alignment || buffer.alignment != 1;
    has_at = has_at || buffer.at != kAnywhere;
  }
  std::string text = "id,lower,upper,size";
  if (has_alignment) text += ",alignment";
  if (has_at) text += ",at";
  if (solution != nullptr) text += ",offset";
  text += '\n';
  auto out = std::back_inserter(text);
  for (BufferId i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    fmt::format_to(out, "{},{},{},{}", NameOf(problem, i), buffer.begin, buffer.end, buffer.size);
    if (has_alignment) fmt::format_to(out, ",{}", buffer.alignment);
    if (has_at) fmt::format_to(out, ",{}", buffer.at == kAnywhere ? "" : std::to_string(buffer.at));
    if (solution != nullptr) fmt::format_to(out, ",{}", solution->offsets[i]);
    text += '\n';
  }
  return text;
}

}  // namespace reprise::plan
