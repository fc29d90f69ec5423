// SPDX-License-Identifier: Apache-2.0
//
// Reads messages in the wire format of protobuf: a sequence of fields, each with its number and one of four encodings.
#pragma once

#include <cstdint>
#include <string_view>

namespace ge::wire {

/// Takes a variable-length number from the front; false when the bytes end before it does.
inline bool TakeNumber(std::string_view& bytes, uint64_t* number) {
  *number = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    *number |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/// Calls `field(bytes)` for each field of the message that has this number and holds bytes, until one says false. False
/// where one did, or where the bytes are no message.
template <class Field>
bool ForEach(std::string_view message, uint32_t number, Field field) {
  while (!message.empty()) {
    uint64_t key = 0;
    uint64_t size = 0;
    if (!TakeNumber(message, &key)) return false;
    switch (key & 7) {
      case 0:
        if (!TakeNumber(message, &size)) return false;
        continue;
      case 1: size = 8; break;
      case 2:
        if (!TakeNumber(message, &size)) return false;
        break;
      case 5: size = 4; break;
      default: return false;
    }
    if (size > message.size()) return false;
    if ((key & 7) == 2 && key >> 3 == number && !field(message.substr(0, size))) return false;
    message.remove_prefix(size);
  }
  return true;
}

}  // namespace ge::wire
