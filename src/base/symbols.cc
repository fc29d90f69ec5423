// SPDX-License-Identifier: Apache-2.0
#include "base/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace reprise {
namespace {

using FileHead = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Section = ElfW(Shdr);
using FileSymbol = ElfW(Sym);

// A file that is closed at the end of the scope.
class OpenFile {
 public:
  explicit OpenFile(const char* path) noexcept : fd_(open(path, O_RDONLY | O_CLOEXEC)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const noexcept { return fd_; }
  template <class T>
  bool Read(T* values, size_t count, uint64_t offset) const noexcept {
    const size_t bytes = count * sizeof(T);
    return pread(fd_, values, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }

 private:
  const int fd_;
};

// Lines of a file, without memory of the heap; of longer ones the begin.
class Lines {
 public:
  explicit Lines(int fd) noexcept : fd_(fd) {}
  bool Next(std::string_view& line) noexcept {
    size_t size = 0;
    for (bool any = false;; any = true) {
      if (at_ == end_) {
        const ssize_t got = read(fd_, buffer_, sizeof buffer_);
        if (got <= 0) {
          line = {line_, size};
          return any;
        }
        at_ = 0;
        end_ = static_cast<size_t>(got);
      }
      const char c = buffer_[at_++];
      if (c == '\n') break;
      if (size < sizeof line_) line_[size++] = c;
    }
    line = {line_, size};
    return true;
  }

 private:
  const int fd_;
  size_t at_ = 0;
  size_t end_ = 0;
  char buffer_[1024];
  char line_[640];
};

uint64_t TakeHex(std::string_view& text) noexcept {
  uint64_t value = 0;
  while (!text.empty()) {
    const char c = text.front();
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<uint64_t>(digit);
    text.remove_prefix(1);
  }
  return value;
}

void SkipWord(std::string_view& text) noexcept {
  while (!text.empty() && text.front() != ' ') text.remove_prefix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
}

// The mapping of /proc/self/maps around the address: its file, and where in it.
bool FindMapping(uintptr_t address, Symbol& symbol, uint64_t& file_offset) noexcept {
  const OpenFile maps("/proc/self/maps");
  if (maps.get() < 0) return false;
  Lines lines(maps.get());
  for (std::string_view line; lines.Next(line);) {
    const uint64_t begin = TakeHex(line);
    if (!line.empty()) line.remove_prefix(1);
    const uint64_t end = TakeHex(line);
    if (address < begin || address >= end) continue;
    SkipWord(line);  // the blank behind the range
    SkipWord(line);  // permissions
    file_offset = TakeHex(line) + (address - begin);
    for (int i = 0; i < 3; ++i) SkipWord(line);  // the rest of the offset, device, inode
    if (line.empty() || line.front() != '/') return false;
    const size_t size = std::min(line.size(), sizeof symbol.file - 1);
    std::memcpy(symbol.file, line.data(), size);
    symbol.file[size] = '\0';
    return true;
  }
  return false;
}

void ReadName(const OpenFile& file, uint64_t at, Symbol& symbol) noexcept {
  const ssize_t got = pread(file.get(), symbol.name, sizeof symbol.name - 1, static_cast<off_t>(at));
  symbol.name[got > 0 ? got : 0] = '\0';
}

// Looks through a table of symbols for the function around the address.
bool FindInTable(const OpenFile& file, const Section& table, const Section& names, Symbol& symbol) noexcept {
  constexpr size_t kBatch = 64;
  FileSymbol symbols[kBatch];
  const size_t count = table.sh_size / sizeof symbols[0];
  for (size_t first = 0; first < count; first += kBatch) {
    const size_t part = std::min(kBatch, count - first);
    if (!file.Read(symbols, part, table.sh_offset + first * sizeof symbols[0])) return false;
    for (size_t i = 0; i < part; ++i) {
      const FileSymbol& one = symbols[i];
      if (ELF64_ST_TYPE(one.st_info) != STT_FUNC || one.st_shndx == SHN_UNDEF || symbol.in_file < one.st_value ||
          symbol.in_file - one.st_value >= std::max<uint64_t>(one.st_size, 1)) {
        continue;
      }
      symbol.in_function = symbol.in_file - one.st_value;
      ReadName(file, names.sh_offset + one.st_name, symbol);
      return true;
    }
  }
  return false;
}

}  // namespace

const char* Symbol::file_name() const noexcept {
  const char* const slash = std::strrchr(file, '/');
  return slash != nullptr ? slash + 1 : file;
}

bool FindSymbol(const void* address, Symbol& symbol) noexcept {
  uint64_t file_offset = 0;
  if (!FindMapping(reinterpret_cast<uintptr_t>(address), symbol, file_offset)) return false;
  symbol.in_file = file_offset;
  const OpenFile file(symbol.file);
  FileHead head;
  if (file.get() < 0 || !file.Read(&head, 1, 0) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_phentsize != sizeof(Segment) || head.e_shentsize != sizeof(Section)) {
    return true;
  }
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    Segment part;
    if (!file.Read(&part, 1, head.e_phoff + i * sizeof part)) return true;
    if (part.p_type != PT_LOAD || file_offset < part.p_offset || file_offset - part.p_offset >= part.p_filesz) continue;
    symbol.in_file = file_offset - part.p_offset + part.p_vaddr;
    break;
  }
  // The full table has all functions; where it was stripped, the other one those that are exported.
  for (const uint32_t wanted : {uint32_t{SHT_SYMTAB}, uint32_t{SHT_DYNSYM}}) {
    for (unsigned i = 0; i < head.e_shnum; ++i) {
      Section table;
      Section names;
      if (!file.Read(&table, 1, head.e_shoff + i * sizeof table)) return true;
      if (table.sh_type != wanted || table.sh_link >= head.e_shnum) continue;
      if (!file.Read(&names, 1, head.e_shoff + table.sh_link * sizeof names)) return true;
      if (FindInTable(file, table, names, symbol)) return true;
    }
  }
  return true;
}

std::string DescribeFunction(const void* function) {
  Symbol symbol;
  if (!FindSymbol(function, symbol)) return fmt::format("{}", function);
  if (symbol.name[0] == '\0') return fmt::format("{:#x} in {}", symbol.in_file, symbol.file_name());
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol.name, nullptr, nullptr, &status),
                                                         std::free);
  return fmt::format("{} in {}", name != nullptr ? name.get() : symbol.name, symbol.file_name());
}

}  // namespace reprise
