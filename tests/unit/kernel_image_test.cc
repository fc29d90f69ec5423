// SPDX-License-Identifier: Apache-2.0
//
// What is found out about a kernel binary before the dynamic loader sees it.
#include "runtime/kernel_image.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "../support/program_folder.h"

namespace reprise::runtime {
namespace {

const std::string kKernels = testing::BesideProgram("conformance_kernels.so");

std::string File(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

ImageKind Kind(const std::string& image) {
  auto kind = InspectImage(image, "image");
  if (kind.ok()) return kind.value();
  ADD_FAILURE() << std::move(kind).status().detail().what;
  return ImageKind::kForeign;
}

// Shared objects that are in order: kernels, our own libraries, and those of the system that this program has loaded.
TEST(KernelImage, SoundFilesAreLoadable) {
  int seen = 0;
  EXPECT_EQ(Kind(File(kKernels)), ImageKind::kLoadable);
  std::ifstream maps("/proc/self/maps");
  std::string previous;
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos || line.find(".so") == std::string::npos) continue;
    const std::string path = line.substr(slash);
    if (path == std::exchange(previous, path) || !std::ifstream(path)) continue;
    // The loader itself and the C library are made differently from what a compiler makes of kernels.
    if (path.find("/ld-") != std::string::npos || path.find("/libc.so") != std::string::npos) continue;
    EXPECT_EQ(Kind(File(path)), ImageKind::kLoadable) << path;
    ++seen;
  }
  EXPECT_GE(seen, 3);
}

TEST(KernelImage, OtherFilesAreForeign) {
  EXPECT_EQ(Kind(""), ImageKind::kForeign);
  EXPECT_EQ(Kind("\x7f"
                 "ELF"),
            ImageKind::kForeign);
  EXPECT_EQ(Kind(std::string(1000, 'x')), ImageKind::kForeign);
  std::string image = File(kKernels);
  image[offsetof(Elf64_Ehdr, e_machine)] = EM_68K;
  EXPECT_EQ(Kind(image), ImageKind::kForeign);
}

class Damaged : public ::testing::Test {
 protected:
  void SetUp() override {
    image_ = File(kKernels);
    ASSERT_GT(image_.size(), sizeof(Elf64_Ehdr));
    std::memcpy(&header_, image_.data(), sizeof header_);
  }
  // The first program header of the type, changed.
  std::string WithSegment(uint32_t type, const std::function<void(Elf64_Phdr&)>& change) const {
    std::string image = image_;
    for (unsigned i = 0; i < header_.e_phnum; ++i) {
      Elf64_Phdr segment;
      char* const at = image.data() + header_.e_phoff + i * sizeof segment;
      std::memcpy(&segment, at, sizeof segment);
      if (segment.p_type != type) continue;
      change(segment);
      std::memcpy(at, &segment, sizeof segment);
      return image;
    }
    ADD_FAILURE() << "no segment of type " << type;
    return image;
  }
  // The entry of the dynamic table, changed.
  std::string WithEntry(int64_t tag, const std::function<void(Elf64_Dyn&)>& change) const {
    std::string image = image_;
    Elf64_Phdr table{};
    (void)WithSegment(PT_DYNAMIC, [&](Elf64_Phdr& segment) { table = segment; });
    for (uint64_t at = table.p_offset; at < table.p_offset + table.p_filesz; at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry;
      std::memcpy(&entry, image.data() + at, sizeof entry);
      if (entry.d_tag != tag) continue;
      change(entry);
      std::memcpy(image.data() + at, &entry, sizeof entry);
      return image;
    }
    ADD_FAILURE() << "no entry of type " << tag;
    return image;
  }
  static void ExpectRefused(const std::string& image) {
    auto kind = InspectImage(image, "the file");
    ASSERT_FALSE(kind.ok());
    const Status status = std::move(kind).status();
    EXPECT_EQ(status.code(), 107000);
    EXPECT_NE(status.detail().what.find("the file is a damaged shared object: "), std::string::npos);
  }

  std::string image_;
  Elf64_Ehdr header_{};
};

TEST_F(Damaged, Segments) {
  ExpectRefused(image_.substr(0, 4096));
  ExpectRefused(image_.substr(0, sizeof(Elf64_Ehdr) + 10));
  ExpectRefused(WithSegment(PT_LOAD, [](Elf64_Phdr& s) { s.p_filesz = UINT64_MAX; }));
  ExpectRefused(WithSegment(PT_LOAD, [](Elf64_Phdr& s) { s.p_memsz = s.p_filesz - 1; }));
  ExpectRefused(WithSegment(PT_LOAD, [](Elf64_Phdr& s) { s.p_vaddr += 8; }));
  ExpectRefused(WithSegment(PT_LOAD, [](Elf64_Phdr& s) { s.p_memsz = uint64_t{1} << 40; }));
  ExpectRefused(WithSegment(PT_DYNAMIC, [](Elf64_Phdr& s) { s.p_vaddr = s.p_offset = 1u << 30; }));
  ExpectRefused(WithSegment(PT_DYNAMIC, [](Elf64_Phdr& s) { s.p_filesz = s.p_memsz = 32; }));
  ExpectRefused(WithSegment(PT_GNU_RELRO, [](Elf64_Phdr& s) { s.p_memsz = 1u << 30; }));
}

TEST_F(Damaged, Tables) {
  const auto far = [](Elf64_Dyn& entry) { entry.d_un.d_val += 1u << 30; };
  for (const int64_t tag : {DT_STRTAB, DT_STRSZ, DT_SYMTAB, DT_GNU_HASH, DT_RELA, DT_RELASZ, DT_INIT_ARRAY, DT_NEEDED,
                            DT_INIT, DT_VERNEED, DT_VERSYM}) {
    SCOPED_TRACE(tag);
    ExpectRefused(WithEntry(tag, far));
  }
  ExpectRefused(WithEntry(DT_RELAENT, [](Elf64_Dyn& entry) { entry.d_un.d_val = 8; }));
  ExpectRefused(WithEntry(DT_SYMENT, [](Elf64_Dyn& entry) { entry.d_un.d_val = 8; }));
  ExpectRefused(WithEntry(DT_STRSZ, [](Elf64_Dyn& entry) { entry.d_un.d_val -= 1; }));
}

}  // namespace
}  // namespace reprise::runtime
