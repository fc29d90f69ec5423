// SPDX-License-Identifier: Apache-2.0
//
// Infers calls from standard input, a line "type|inputs|attributes" each (infer_text.h), and writes a line of outputs
// or "refused: why" for each. tests/ops/test_infer.py compares them with PyTorch.
#include <iostream>

#include "opdef/infer_text.h"

int main() {
  using reprise::opdef::testing::Call;
  using reprise::opdef::testing::Split;
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::vector<std::string> parts = Split(line, "|");
    if (parts.size() != 3 || reprise::opdef::FindGraphOp(parts[0]) == nullptr) {
      std::cerr << "no call of a graph operator: " << line << "\n";
      return 1;
    }
    Call call({parts[0].c_str(), parts[1].c_str(), parts[2].c_str(), ""});
    const reprise::Status status = reprise::opdef::Infer(call.context);
    std::cout << (status.ok() ? call.Text() : "refused: " + status.detail().what) << "\n";
  }
  return 0;
}
