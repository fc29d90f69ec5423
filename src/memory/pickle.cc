// SPDX-License-Identifier: Apache-2.0
#include "memory/pickle.h"

#include <utility>

namespace reprise::memory {
namespace {

// Values that are added at once. Readers keep them on a stack, and some pass them on as arguments of one call.
constexpr int kBatch = 1000;
// Longer texts are unlikely to come again.
constexpr size_t kLongText = 256;

}  // namespace

PickleWriter::PickleWriter() { out_ = "\x80\x02"; }

void PickleWriter::Number(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
}

// Before each value: in a list, or the value of a key, it is one more of the batch.
void PickleWriter::Item() {
  if (open_.empty()) return;
  Open& open = open_.back();
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (open.count == kBatch) {
    out_ += open.end;
    open.count = 0;
  }
  if (open.count++ == 0) out_ += '(';
}

void PickleWriter::Begin(char empty, char end) {
  Item();
  out_ += empty;
  open_.push_back({end});
}

void PickleWriter::End() {
  if (open_.back().count != 0) out_ += open_.back().end;
  open_.pop_back();
}

uint32_t PickleWriter::Remember() {
  if (remembered_ < 256) {
    out_ += 'q';
    Number(remembered_, 1);
  } else {
    out_ += 'r';
    Number(remembered_, 4);
  }
  return remembered_++;
}

void PickleWriter::Recall(uint32_t number) {
  Item();
  if (number < 256) {
    out_ += 'h';
    Number(number, 1);
  } else {
    out_ += 'j';
    Number(number, 4);
  }
}

void PickleWriter::Text(std::string_view text) {
  if (text.size() <= kLongText) {
    const auto it = texts_.find(std::string(text));
    if (it != texts_.end()) return Recall(it->second);
  }
  Item();
  out_ += 'X';
  Number(text.size(), 4);
  out_ += text;
  if (text.size() <= kLongText) texts_.emplace(text, Remember());
}

void PickleWriter::Key(std::string_view text) {
  Text(text);
  after_key_ = true;
}

void PickleWriter::Bool(bool value) {
  Item();
  out_ += value ? '\x88' : '\x89';
}

void PickleWriter::Int(int64_t value) {
  Item();
  if (value >= 0 && value < 256) {
    out_ += 'K';
    Number(static_cast<uint64_t>(value), 1);
  } else if (value >= 0 && value < 65536) {
    out_ += 'M';
    Number(static_cast<uint64_t>(value), 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    out_ += 'J';
    Number(static_cast<uint64_t>(value), 4);
  } else {
    out_ += "\x8a\x08";
    Number(static_cast<uint64_t>(value), 8);
  }
}

void PickleWriter::Unsigned(uint64_t value) {
  if (value <= INT64_MAX) return Int(static_cast<int64_t>(value));
  Item();
  out_ += "\x8a\x09";
  Number(value, 8);
  out_ += '\0';
}

void PickleWriter::Pair(uint64_t first, uint64_t second) {
  Item();
  // A pair has no mark and no batches: it begins as if there were one.
  open_.push_back({'\0', 1});
  Unsigned(first);
  Unsigned(second);
  open_.pop_back();
  out_ += '\x86';
}

std::string PickleWriter::Finish() {
  out_ += '.';
  return std::move(out_);
}

}  // namespace reprise::memory
