// SPDX-License-Identifier: Apache-2.0
#include "compiler/import/file_constant.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "opdef/graph_op.h"

namespace reprise::compiler {
namespace {

Status WrongValueFile(const Node& node, int code, std::string what, std::string hint) {
  return Error(code, fmt::format("node {} ({}): {}", node.name, node.type, what))
      .Culprit(fmt::format("node {}", node.name))
      .Hint(std::move(hint));
}

template <class T>
const T* FileAttribute(const Node& node, std::string_view name) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? nullptr : std::get_if<T>(&found->second);
}

struct ValuePlace {
  std::string path;
  int64_t offset = 0;
  std::optional<int64_t> length;
};

StatusOr<ValuePlace> ValuePlaceOf(const Node& node, const FileConstantPlaces& places) {
  const auto text = [&](std::string_view name) -> std::string {
    const auto* const value = FileAttribute<std::string>(node, name);
    return value != nullptr ? *value : std::string();
  };
  ValuePlace place;
  if (const std::string location = text("location"); !location.empty()) {
    place.path = location;
    if (const auto* const offset = FileAttribute<int64_t>(node, "offset")) place.offset = *offset;
    const auto* const length = FileAttribute<int64_t>(node, "length");
    if (length != nullptr && *length > 0) place.length = *length;
  } else if (const std::string path = text("file_path"); !path.empty()) {
    place.path = path;
  } else if (const std::string id = text("file_id"); !id.empty()) {
    const auto found = places.bins.find(id);
    if (found == places.bins.end()) {
      return WrongValueFile(node, kInvalidArgument, fmt::format("no file is known for its file_id {}", id),
                            "name the file in the option ge.exec.value_bins");
    }
    place.path = found->second;
  } else {
    return WrongValueFile(node, kInvalidArgument, "it names no file",
                          "set the attribute location, file_path or file_id");
  }
  if (!places.folder.empty()) place.path = (std::filesystem::path(places.folder) / place.path).string();
  return place;
}

}  // namespace

StatusOr<std::shared_ptr<const Constant>> ReadFileConstant(const Node& node, const FileConstantPlaces& places) {
  REPRISE_ASSIGN_OR_RETURN(const ValuePlace place, ValuePlaceOf(node, places));
  const auto* const shape = FileAttribute<std::vector<int64_t>>(node, "shape");
  const auto* const type = FileAttribute<opdef::DataTypeValue>(node, "dtype");
  auto constant = std::make_shared<Constant>();
  if (shape != nullptr) {
    constant->shape = *shape;
  } else if (!node.outputs.empty() && node.outputs[0].tensor.shape.is_static()) {
    constant->shape = node.outputs[0].tensor.shape.numbers();
  } else {
    return WrongValueFile(node, kInvalidArgument, "its shape is not known", "set the attribute shape");
  }
  constant->dtype = type != nullptr ? type->number : node.outputs.empty() ? -1 : node.outputs[0].tensor.dtype;
  const int64_t bits = opdef::TypeBits(constant->dtype);
  int64_t total = bits;
  bool fits = bits > 0;
  for (const int64_t dim : constant->shape) fits = fits && dim >= 0 && !__builtin_mul_overflow(total, dim, &total);
  if (!fits || total > INT64_MAX - 7) {
    return WrongValueFile(
        node, kInvalidArgument,
        fmt::format("type {} and its shape do not say how many bytes it has", opdef::TypeName(constant->dtype)),
        "set the attributes dtype and shape");
  }
  const int64_t bytes = (total + 7) / 8;
  if (place.length && *place.length != bytes) {
    return WrongValueFile(node, kInvalidArgument,
                          fmt::format("its length is {}, its type and shape ask for {} bytes", *place.length, bytes),
                          "correct one of them");
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(place.path.c_str(), "rbe"), &std::fclose);
  const auto wrong = [&](std::string_view reason) {
    return WrongValueFile(node, kInvalidFile, fmt::format("the file \"{}\" cannot be used: {}", place.path, reason),
                          "check the path, and that the file is the one that belongs to the model");
  };
  if (file == nullptr) return wrong(std::strerror(errno));
  if (std::fseek(file.get(), 0, SEEK_END) != 0) return wrong(std::strerror(errno));
  const int64_t size = std::ftell(file.get());
  if (place.offset < 0 || place.offset > size || size - place.offset < bytes) {
    return wrong(fmt::format("it has {} bytes, and {} from byte {} on are asked for", size, bytes, place.offset));
  }
  constant->bytes.resize(static_cast<size_t>(bytes));
  if (std::fseek(file.get(), place.offset, SEEK_SET) != 0 ||
      std::fread(constant->bytes.data(), 1, constant->bytes.size(), file.get()) != constant->bytes.size()) {
    return wrong("it cannot be read completely");
  }
  return std::shared_ptr<const Constant>(std::move(constant));
}

}  // namespace reprise::compiler
