// SPDX-License-Identifier: Apache-2.0
//
// Calls of graph operators as text, for tests: inputs "x=float32[s0, 128]; axes=int64[1]{-1}; list=int8[2] & int8[3]"
// with values in braces, attributes "axis=1 keep_dims=true reduction='none' perm=[1,0]". Outputs are written in the
// order of the row, joined by "; ".
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "opdef/infer.h"

namespace reprise::opdef::testing {

inline std::vector<std::string> Split(const std::string& text, const std::string& separator) {
  std::vector<std::string> words;
  size_t begin = 0;
  while (!text.empty() && begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  return words;
}

inline Dim ParseDim(const std::string& text) {
  if (text == "?") return Dim::Unknown();
  Dim sum;
  for (const std::string& term : Split(text, "+")) {
    Dim product = 1;
    for (const std::string& factor : Split(term, "*")) {
      product = product * (factor[0] == 's' ? Dim::Symbol(std::stoi(factor.substr(1))) : Dim(std::stoll(factor)));
    }
    sum = sum + product;
  }
  return sum;
}

inline int32_t ParseType(const std::string& text) {
  for (int32_t type = 0; type < 64; ++type) {
    if (TypeName(type) == text) return type;
  }
  throw std::invalid_argument("no type is called " + text);
}

inline InferTensor ParseTensor(const std::string& text) {
  InferTensor tensor;
  const size_t open = text.find('[');
  const size_t close = text.find(']');
  tensor.dtype = ParseType(text.substr(0, open));
  const std::string sizes = text.substr(open + 1, close - open - 1);
  if (sizes == "..") {
    tensor.shape = Shape::UnknownRank();
  } else {
    for (const std::string& size : Split(sizes, ", ")) tensor.shape.dims().push_back(ParseDim(size));
  }
  if (close + 1 == text.size()) return tensor;
  std::vector<std::string> values = Split(text.substr(close + 2, text.size() - close - 3), ", ");
  if (!values.empty() && values[0].find('.') != std::string::npos) {
    for (const std::string& value : values) {
      if (!tensor.reals.has_value()) tensor.reals.emplace();
      tensor.reals->push_back(std::stod(value));
    }
    return tensor;
  }
  tensor.value.emplace();
  for (const std::string& value : values) tensor.value->push_back(ParseDim(value));
  return tensor;
}

inline Attributes ParseAttributes(const std::string& text) {
  Attributes attributes;
  for (const std::string& word : Split(text, " ")) {
    const size_t equal = word.find('=');
    const std::string name = word.substr(0, equal);
    const std::string value = word.substr(equal + 1);
    if (value[0] == '\'') {
      attributes[name] = value.substr(1, value.size() - 2);
    } else if (value[0] == '[') {
      std::vector<int64_t> list;
      for (const std::string& entry : Split(value.substr(1, value.size() - 2), ",")) list.push_back(std::stoll(entry));
      attributes[name] = list;
    } else if (value == "true" || value == "false") {
      attributes[name] = value == "true";
    } else if (value.find('.') != std::string::npos) {
      attributes[name] = std::stof(value);
    } else {
      attributes[name] = int64_t{std::stoll(value)};
    }
  }
  return attributes;
}

struct Case {
  const char* type;
  const char* inputs;
  const char* attributes;
  const char* outputs;  // or what the refusal says
};

class Call {
 public:
  explicit Call(const Case& test)
      : op_(*FindGraphOp(test.type)), attributes_(ParseAttributes(test.attributes)), context(op_) {
    context.attributes = &attributes_;
    for (const std::string& word : Split(test.inputs, "; ")) {
      const size_t equal = word.find('=');
      for (size_t i = 0; i < op_.inputs.size(); ++i) {
        if (op_.inputs[i].name != word.substr(0, equal)) continue;
        for (const std::string& tensor : Split(word.substr(equal + 1), " & ")) {
          context.inputs[i].push_back(ParseTensor(tensor));
        }
      }
    }
  }
  std::string Text() const {
    std::string out;
    for (const std::vector<InferResult>& results : context.outputs) {
      std::string list;
      for (const InferResult& result : results) {
        list += (list.empty() ? "" : " & ") + TypeName(result.dtype) + result.shape.text();
        if (result.bound.has_value()) list += " at most " + result.bound->text();
        if (result.value.has_value()) {
          std::string values;
          for (const Dim& value : *result.value) values += (values.empty() ? "" : ", ") + value.text();
          list += "{" + values + "}";
        }
      }
      out += (out.empty() ? "" : "; ") + list;
    }
    return out;
  }
  // Symbols of the inputs become numbers.
  void Substitute(const std::map<int, Dim>& numbers) {
    for (std::vector<InferTensor>& tensors : context.inputs) {
      for (InferTensor& tensor : tensors) {
        tensor.shape = tensor.shape.Substitute(numbers);
        if (!tensor.value.has_value()) continue;
        for (Dim& value : *tensor.value) value = value.Substitute(numbers);
      }
    }
  }

 private:
  const GraphOp& op_;
  Attributes attributes_;

 public:
  InferContext context;
};

}  // namespace reprise::opdef::testing
