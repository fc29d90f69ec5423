// SPDX-License-Identifier: Apache-2.0
#include "runtime/chip.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/env.h"

namespace reprise::runtime {
namespace {

std::string_view Family(std::string_view soc) {
  for (const std::string_view family :
       {std::string_view("Ascend910B"), std::string_view("Ascend910_93"), std::string_view("Ascend310P"),
        std::string_view("Ascend310B"), std::string_view("Ascend950")}) {
    if (soc.size() >= family.size() && strncasecmp(soc.data(), family.data(), family.size()) == 0) return family;
  }
  return soc;
}

}  // namespace

bool SameChipFamily(std::string_view chip, std::string_view other) {
  const std::string_view one = Family(chip), two = Family(other);
  return one.size() == two.size() && strncasecmp(one.data(), two.data(), one.size()) == 0;
}

Version ParseVersion(const std::string& text) {
  Version version;
  version.text = text;
  std::string* const fields[] = {&version.major, &version.minor, &version.release};
  std::array<int32_t, 3> numbers{};
  size_t field = 0;
  size_t numeric = 0;
  int32_t stage = 3;  // 0 alpha, 1 beta, 2 rc, 3 final
  int32_t stage_number = 0;
  for (size_t at = 0; at < text.size(); ++field) {
    const size_t end = std::min(text.find_first_of(".-", at), text.size());
    std::string part = text.substr(at, end - at);
    if (field < std::size(fields)) *fields[field] = part;
    if (field == std::size(fields)) version.patch = text.substr(at);
    std::transform(part.begin(), part.end(), part.begin(), [](unsigned char c) { return std::tolower(c); });
    const size_t digits = part.find_first_of("0123456789");
    const std::string word = part.substr(0, digits);
    const int32_t number = digits == std::string::npos ? 0 : static_cast<int32_t>(std::stol(part.substr(digits, 4)));
    if (word.empty() && stage == 3 && numeric < numbers.size()) {
      numbers[numeric++] = number;
    } else {
      stage = std::min(stage, word == "alpha" ? 0 : word == "beta" ? 1 : word == "rc" ? 2 : 3);
      if (number != 0) stage_number = number;
    }
    at = end + 1;
  }
  version.number = ((numbers[0] * 100 + numbers[1]) * 100 + numbers[2]) * 1000 +
                   (stage == 3 ? 900 : stage * 300 + std::min(stage_number, 299));
  return version;
}

const Version& SoftwareVersion() {
  static const auto* const version = new Version(ParseVersion(Env(EnvVar::kCannVersion)));
  return *version;
}

}  // namespace reprise::runtime
