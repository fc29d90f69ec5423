// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_image.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace reprise::runtime {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
constexpr uint32_t kCallsItsAddend = R_X86_64_IRELATIVE;
constexpr uint32_t kAddsTheBase = R_X86_64_RELATIVE;
constexpr uint32_t kWritesTwoWords = R_X86_64_TLSDESC;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr uint32_t kCallsItsAddend = R_AARCH64_IRELATIVE;
constexpr uint32_t kAddsTheBase = R_AARCH64_RELATIVE;
constexpr uint32_t kWritesTwoWords = R_AARCH64_TLSDESC;
#else
#error "name the ELF machine of this processor"
#endif

constexpr uint64_t kMostMemory = uint64_t{1} << 32;  // of all segments
constexpr uint64_t kMostAlignment = 2u << 20;
constexpr uint64_t kImagePage = 4096;

// Entries of the dynamic table that compilers and linkers make today. Another one is a damaged one.
constexpr int64_t kKnownTags[] = {
    DT_NEEDED,
    DT_SONAME,
    DT_RPATH,
    DT_RUNPATH,
    DT_INIT,
    DT_FINI,
    DT_INIT_ARRAY,
    DT_STRTAB,
    DT_INIT_ARRAYSZ,
    DT_FINI_ARRAY,
    DT_FINI_ARRAYSZ,
    DT_HASH,
    DT_GNU_HASH,
    DT_SYMTAB,
    DT_STRSZ,
    DT_SYMENT,
    DT_PLTGOT,
    DT_PLTRELSZ,
    DT_PLTREL,
    DT_JMPREL,
    DT_RELA,
    DT_RELASZ,
    DT_RELAENT,
    DT_RELACOUNT,
    DT_RELR,
    DT_RELRSZ,
    DT_RELRENT,
    DT_VERNEED,
    DT_VERNEEDNUM,
    DT_VERSYM,
    DT_VERDEF,
    DT_VERDEFNUM,
    DT_FLAGS,
    DT_FLAGS_1,
    DT_BIND_NOW,
    DT_SYMBOLIC,
    DT_DEBUG,
    DT_TLSDESC_PLT,
    DT_TLSDESC_GOT,
#if defined(__aarch64__)
    DT_AARCH64_BTI_PLT,
    DT_AARCH64_PAC_PLT,
    DT_AARCH64_VARIANT_PCS,
#endif
};

// What is wrong with an image; empty when nothing is.
using Fault = std::string;

class Image {
 public:
  explicit Image(std::string_view bytes) : bytes_(bytes) {}

  Fault Check(const Elf64_Ehdr& header) {
    for (const auto& check : {&Image::CheckSegments, &Image::CheckDynamic, &Image::CheckStrings}) {
      if (Fault fault = (this->*check)(header); !fault.empty()) return fault;
    }
    for (const auto& check : {&Image::CheckVersions, &Image::CheckHash, &Image::CheckOldHash, &Image::CheckRelocations,
                              &Image::CheckFunctions}) {
      if (Fault fault = (this->*check)(header); !fault.empty()) return fault;
    }
    return {};
  }

 private:
  template <class T>
  bool ReadFile(uint64_t offset, T& value) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) return false;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return true;
  }
  static bool Contains(uint64_t begin, uint64_t bytes, uint64_t at, uint64_t wanted) {
    return at >= begin && at - begin <= bytes && wanted <= bytes - (at - begin);
  }
  // The segment whose memory (or whose part that comes from the file) holds the range.
  const Elf64_Phdr* Around(uint64_t address, uint64_t bytes, bool from_file) const {
    for (const Elf64_Phdr& load : loads_) {
      if (Contains(load.p_vaddr, from_file ? load.p_filesz : load.p_memsz, address, bytes)) return &load;
    }
    return nullptr;
  }
  bool InMemory(uint64_t address, uint64_t bytes) const { return Around(address, bytes, false) != nullptr; }
  template <class T>
  bool Read(uint64_t address, T& value) const {
    const Elf64_Phdr* const load = Around(address, sizeof(T), true);
    return load != nullptr && ReadFile(load->p_offset + (address - load->p_vaddr), value);
  }
  bool IsCode(uint64_t address) const {
    const Elf64_Phdr* const load = Around(address, 1, true);
    return load != nullptr && (load->p_flags & PF_X) != 0;
  }
  uint64_t Tag(int64_t tag) const {
    const auto it = dynamic_.find(tag);
    return it != dynamic_.end() ? it->second : 0;
  }
  bool Has(int64_t tag) const { return dynamic_.contains(tag); }

  Fault CheckSegments(const Elf64_Ehdr& header) {
    if (header.e_phentsize != sizeof(Elf64_Phdr)) return "its program headers have another size";
    uint64_t end = 0;
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment;
      if (header.e_phoff > bytes_.size() || !ReadFile(header.e_phoff + uint64_t{i} * sizeof segment, segment)) {
        return "it is cut off within its program headers";
      }
      if (segment.p_type != PT_LOAD) {
        others_.push_back(segment);
        continue;
      }
      if (segment.p_offset > bytes_.size() || segment.p_filesz > bytes_.size() - segment.p_offset) {
        return fmt::format("it is cut off: it has {} bytes, fewer than its segments", bytes_.size());
      }
      if (segment.p_memsz == 0 || segment.p_filesz > segment.p_memsz || segment.p_vaddr > kMostMemory ||
          segment.p_memsz > kMostMemory - segment.p_vaddr) {
        return fmt::format("segment {} has no possible size", i);
      }
      if ((segment.p_flags & PF_R) == 0) return fmt::format("segment {} cannot be read", i);
      // The loader maps whole pages, in order, and later segments over earlier ones.
      if (segment.p_align > kMostAlignment || (segment.p_align & (segment.p_align - 1)) != 0 ||
          (segment.p_vaddr - segment.p_offset) % std::max<uint64_t>(segment.p_align, kImagePage) != 0) {
        return fmt::format("segment {} is not aligned", i);
      }
      if (!loads_.empty() && segment.p_vaddr / kImagePage * kImagePage < end)
        return fmt::format("segment {} overlaps another", i);
      end = (segment.p_vaddr + segment.p_memsz + kImagePage - 1) / kImagePage * kImagePage;
      loads_.push_back(segment);
    }
    if (loads_.empty()) return "it has nothing to load";
    for (const Elf64_Phdr& other : others_) {
      switch (other.p_type) {
        case PT_TLS:
          if (other.p_filesz > other.p_memsz || other.p_memsz > kMostAlignment || other.p_align > kImagePage ||
              (other.p_align & (other.p_align - 1)) != 0 || Around(other.p_vaddr, other.p_filesz, true) == nullptr) {
            return "its thread-local storage has no possible place";
          }
          break;
        case PT_GNU_RELRO:
          if (!InMemory(other.p_vaddr, other.p_memsz)) return "a range to protect lies outside of it";
          break;
        case PT_NOTE:
        case PT_GNU_PROPERTY:
        case PT_GNU_EH_FRAME:
        case PT_DYNAMIC:
        case PT_PHDR:
          if (other.p_filesz != other.p_memsz || Around(other.p_vaddr, other.p_memsz, true) == nullptr) {
            return fmt::format("its table of type {:#x} lies outside of its segments", other.p_type);
          }
          break;
        default: break;
      }
    }
    return {};
  }

  Fault CheckDynamic(const Elf64_Ehdr&) {
    bool found = false;
    for (const Elf64_Phdr& other : others_) {
      if (other.p_type != PT_DYNAMIC) continue;
      if (std::exchange(found, true)) return "it has two dynamic tables";
      bool ended = false;
      for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= other.p_filesz && !ended; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry;
        if (!Read(other.p_vaddr + at, entry)) return "its dynamic table is cut off";
        ended = entry.d_tag == DT_NULL;
        if (!ended) (entry.d_tag == DT_NEEDED ? needed_.emplace_back() : dynamic_[entry.d_tag]) = entry.d_un.d_val;
      }
      if (!ended) return "its dynamic table has no end";
    }
    return {};
  }

  // Names end with a zero, and inside.
  bool IsName(uint64_t offset) const { return offset < Tag(DT_STRSZ); }

  Fault CheckStrings(const Elf64_Ehdr&) {
    if (dynamic_.empty()) return "it has no dynamic table";
    const uint64_t bytes = Tag(DT_STRSZ);
    char last = 1;
    if (bytes == 0 || Around(Tag(DT_STRTAB), bytes, true) == nullptr || !Read(Tag(DT_STRTAB) + bytes - 1, last) ||
        last != 0) {
      return "its names lie outside of it";
    }
    for (const int64_t tag : {DT_SONAME, DT_RPATH, DT_RUNPATH}) {
      if (Has(tag) && !IsName(Tag(tag))) return "a name lies outside of its names";
    }
    for (const uint64_t name : needed_) {
      if (Name(name).empty()) return "the name of a library lies outside of its names";
    }
    for (const auto& [tag, value] : dynamic_) {
      if (std::find(std::begin(kKnownTags), std::end(kKnownTags), tag) == std::end(kKnownTags)) {
        return fmt::format("it has an entry of type {:#x}, which kernels do not need", tag);
      }
    }
    // What the loader uses together must be there together.
    constexpr std::pair<int64_t, int64_t> kPairs[] = {{DT_RELA, DT_RELASZ},
                                                      {DT_RELA, DT_RELAENT},
                                                      {DT_JMPREL, DT_PLTRELSZ},
                                                      {DT_JMPREL, DT_PLTREL},
                                                      {DT_INIT_ARRAY, DT_INIT_ARRAYSZ},
                                                      {DT_FINI_ARRAY, DT_FINI_ARRAYSZ},
                                                      {DT_RELR, DT_RELRSZ},
                                                      {DT_RELR, DT_RELRENT},
                                                      {DT_VERNEED, DT_VERNEEDNUM},
                                                      {DT_VERDEF, DT_VERDEFNUM}};
    for (const auto& [one, other] : kPairs) {
      if (Has(one) != Has(other)) return fmt::format("of its entries {:#x} and {:#x} one is missing", one, other);
    }
    if ((Has(DT_VERNEED) || Has(DT_VERDEF)) != Has(DT_VERSYM)) return "its versions are incomplete";
    if (Has(DT_PLTGOT) && !MayChange(Tag(DT_PLTGOT), 24)) return "its table of addresses cannot be written";
    if ((Tag(DT_FLAGS) & DF_TEXTREL) != 0) return "it would change its own code";
    if (!Has(DT_SYMTAB) || Tag(DT_SYMENT) != sizeof(Elf64_Sym)) return "it has no table of symbols";
    return {};
  }

  // The loader reads entry, name and version of each symbol that something refers to.
  Fault CheckSymbol(uint64_t index) const {
    Elf64_Sym symbol;
    if (index > UINT32_MAX || !Read(Tag(DT_SYMTAB) + index * sizeof symbol, symbol) || !IsName(symbol.st_name)) {
      return fmt::format("symbol {} lies outside of it", index);
    }
    uint16_t version = 0;
    if (Has(DT_VERSYM) && !Read(Tag(DT_VERSYM) + index * sizeof version, version)) {
      return fmt::format("the version of symbol {} lies outside of it", index);
    }
    if ((version & kVersionMask) > most_version_) return fmt::format("symbol {} has no such version", index);
    if (index != 0 && symbol.st_shndx == SHN_UNDEF && ELF64_ST_VISIBILITY(symbol.st_other) != STV_DEFAULT) {
      return fmt::format("symbol {} is hidden, and not there", index);
    }
    if (symbol.st_shndx != SHN_UNDEF && symbol.st_shndx != SHN_ABS && ELF64_ST_TYPE(symbol.st_info) != STT_TLS) {
      // Functions may be called by the loader or by us, data only by code of the file.
      const unsigned type = ELF64_ST_TYPE(symbol.st_info);
      const bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
      if (is_function ? !IsCode(symbol.st_value) : !InMemory(symbol.st_value, 0)) {
        return fmt::format("the value of symbol {} lies outside of it", index);
      }
    }
    return {};
  }

  Fault CheckHash(const Elf64_Ehdr&) {
    if (!Has(DT_GNU_HASH)) return Has(DT_HASH) ? Fault() : "it has no index of its symbols";
    const uint64_t table = Tag(DT_GNU_HASH);
    uint32_t head[4];  // buckets, first symbol, words of the filter, shift
    if (!Read(table, head)) return "the index of its symbols lies outside of it";
    if (head[2] == 0 || (head[2] & (head[2] - 1)) != 0 || head[3] > 31) return "the index of its symbols is damaged";
    const uint64_t filter = table + sizeof head;
    const uint64_t buckets = filter + uint64_t{head[2]} * 8;
    const uint64_t chains = buckets + uint64_t{head[0]} * 4;
    if (head[0] == 0 || Around(table, chains - table, true) == nullptr) return "the index of its symbols is cut off";
    for (uint32_t i = 0; i < head[0]; ++i) {
      uint32_t symbol = 0;
      (void)Read(buckets + uint64_t{i} * 4, symbol);
      if (symbol == 0) continue;
      if (symbol < head[1]) return "the index of its symbols is damaged";
      // Chains lie one behind the other, so a list of all of them stays as short as the file.
      for (uint32_t hash = 0; (hash & 1) == 0; ++symbol) {
        if (!Read(chains + uint64_t{symbol - head[1]} * 4, hash)) return "the index of its symbols has no end";
        if (checked_ > bytes_.size()) return "the index of its symbols is damaged";
        ++checked_;
        if (Fault fault = CheckSymbol(symbol); !fault.empty()) return fault;
      }
    }
    return {};
  }

  Fault CheckOldHash(const Elf64_Ehdr&) {
    if (!Has(DT_HASH)) return {};
    const uint64_t table = Tag(DT_HASH);
    uint32_t head[2];  // buckets, chains
    if (!Read(table, head)) return "the index of its symbols lies outside of it";
    const uint64_t words = uint64_t{head[0]} + head[1];
    if (head[0] == 0 || Around(table, sizeof head + words * 4, true) == nullptr) {
      return "the index of its symbols is cut off";
    }
    std::vector<bool> seen(head[1]);
    for (uint32_t i = 0; i < head[0]; ++i) {
      uint32_t symbol = 0;
      for ((void)Read(table + sizeof head + uint64_t{i} * 4, symbol); symbol != 0;
           (void)Read(table + sizeof head + (uint64_t{head[0]} + symbol) * 4, symbol)) {
        if (symbol >= head[1] || seen[symbol]) return "the index of its symbols goes in circles";
        seen[symbol] = true;
        if (Fault fault = CheckSymbol(symbol); !fault.empty()) return fault;
      }
    }
    return {};
  }

  Fault CheckRelocations(const Elf64_Ehdr&) {
    if (Has(DT_JMPREL) && Tag(DT_PLTREL) != DT_RELA) return "its relocations are of another kind";
    if (Has(DT_RELA) && Tag(DT_RELAENT) != sizeof(Elf64_Rela)) return "its relocations have another size";
    for (const auto& [begin, size] : {std::pair{DT_RELA, DT_RELASZ}, std::pair{DT_JMPREL, DT_PLTRELSZ}}) {
      if (!Has(begin)) continue;
      const uint64_t bytes = Tag(size);
      if (bytes % sizeof(Elf64_Rela) != 0 || (bytes != 0 && Around(Tag(begin), bytes, true) == nullptr)) {
        return "its relocations lie outside of it";
      }
      // The loader takes the kind of the first ones for granted.
      const uint64_t simple = begin == DT_RELA ? Tag(DT_RELACOUNT) : 0;
      if (simple > bytes / sizeof(Elf64_Rela)) return "it has fewer relocations than it says";
      for (uint64_t at = 0; at < bytes; at += sizeof(Elf64_Rela)) {
        Elf64_Rela relocation;
        (void)Read(Tag(begin) + at, relocation);
        const uint32_t type = ELF64_R_TYPE(relocation.r_info);
        const auto addend = static_cast<uint64_t>(relocation.r_addend);
        if (at / sizeof(Elf64_Rela) < simple && type != kAddsTheBase) return "its relocations are out of order";
        if (!MayChange(relocation.r_offset, type == kWritesTwoWords ? 16 : 8)) {
          return "a relocation changes what it must not";
        }
        changed_[relocation.r_offset] = type == kAddsTheBase ? addend : kAnySymbol;
        if (Fault fault = CheckSymbol(ELF64_R_SYM(relocation.r_info)); !fault.empty()) return fault;
        if (type == kCallsItsAddend && !IsCode(addend)) {
          return "a relocation calls what is no code";
        }
      }
    }
    if (Has(DT_RELR)) {
      const uint64_t bytes = Tag(DT_RELRSZ);
      if (bytes % 8 != 0 || (bytes != 0 && Around(Tag(DT_RELR), bytes, true) == nullptr)) {
        return "its relocations lie outside of it";
      }
      uint64_t where = 0;
      for (uint64_t at = 0; at < bytes; at += 8) {
        uint64_t entry = 0;
        (void)Read(Tag(DT_RELR) + at, entry);
        const bool is_address = (entry & 1) == 0;
        for (int bit = is_address ? 0 : 1; bit < (is_address ? 1 : 64); ++bit) {
          if (!is_address && (entry >> bit & 1) == 0) continue;
          const uint64_t target = is_address ? entry : where + 8 * (static_cast<uint64_t>(bit) - 1);
          if (!MayChange(target, 8)) return "a relocation changes what it must not";
          uint64_t addend = 0;
          (void)Read(target, addend);
          changed_[target] = addend;
        }
        where = is_address ? entry + 8 : where + uint64_t{63} * 8;
      }
    }
    return {};
  }

  // Memory that can be written, and not the dynamic table itself, which would make what was checked here worthless.
  bool MayChange(uint64_t target, uint64_t bytes) const {
    const Elf64_Phdr* const load = Around(target, bytes, false);
    if (load == nullptr || (load->p_flags & PF_W) == 0) return false;
    for (const Elf64_Phdr& other : others_) {
      if (other.p_type == PT_DYNAMIC && target < other.p_vaddr + other.p_memsz && target + bytes > other.p_vaddr) {
        return false;
      }
    }
    return true;
  }

  Fault CheckFunctions(const Elf64_Ehdr&) {
    for (const int64_t tag : {DT_INIT, DT_FINI}) {
      if (Has(tag) && !IsCode(Tag(tag))) return "its first or last function is no code";
    }
    for (const auto& [begin, size] :
         {std::pair{DT_INIT_ARRAY, DT_INIT_ARRAYSZ}, std::pair{DT_FINI_ARRAY, DT_FINI_ARRAYSZ}}) {
      if (!Has(begin)) continue;
      if (Tag(size) % 8 != 0 || Around(Tag(begin), Tag(size), true) == nullptr) {
        return "its table of first or last functions lies outside of it";
      }
      for (uint64_t at = 0; at < Tag(size); at += 8) {
        const auto entry = changed_.find(Tag(begin) + at);
        if (entry == changed_.end() || (entry->second != kAnySymbol && !IsCode(entry->second))) {
          return "one of its first or last functions is no code";
        }
      }
    }
    return {};
  }

  std::string Name(uint64_t offset) const {
    std::string name;
    for (char c = 1; IsName(offset) && Read(Tag(DT_STRTAB) + offset, c) && c != 0; ++offset) name += c;
    return name;
  }
  bool IsNeeded(uint64_t offset) const {
    const std::string name = Name(offset);
    return IsName(offset) &&
           std::any_of(needed_.begin(), needed_.end(), [&](uint64_t other) { return Name(other) == name; });
  }

  Fault CheckVersions(const Elf64_Ehdr&) {
    constexpr const char* kDamaged = "its versions are damaged";
    if (Has(DT_VERNEED)) {
      uint64_t at = Tag(DT_VERNEED);
      for (;;) {
        Elf64_Verneed need;
        if (!Read(at, need) || !IsNeeded(need.vn_file)) return kDamaged;
        uint64_t aux = at + need.vn_aux;
        for (;;) {
          Elf64_Vernaux version;
          if (!Read(aux, version) || !IsName(version.vna_name)) return kDamaged;
          most_version_ = std::max<uint16_t>(most_version_, version.vna_other & kVersionMask);
          if (version.vna_next == 0) break;
          aux += version.vna_next;
        }
        if (need.vn_next == 0) break;
        at += need.vn_next;
      }
    }
    if (Has(DT_VERDEF)) {
      uint64_t at = Tag(DT_VERDEF);
      for (;;) {
        Elf64_Verdef defined;
        Elf64_Verdaux name;
        if (!Read(at, defined) || !Read(at + defined.vd_aux, name) || !IsName(name.vda_name)) return kDamaged;
        most_version_ = std::max<uint16_t>(most_version_, defined.vd_ndx & kVersionMask);
        if (defined.vd_next == 0) break;
        at += defined.vd_next;
      }
    }
    return {};
  }

  std::string_view bytes_;
  std::vector<Elf64_Phdr> loads_;
  std::vector<Elf64_Phdr> others_;
  std::map<int64_t, uint64_t> dynamic_;
  std::vector<uint64_t> needed_;
  static constexpr uint64_t kAnySymbol = UINT64_MAX;
  std::map<uint64_t, uint64_t> changed_;  // by relocations: what they put there
  uint64_t checked_ = 0;
  static constexpr uint16_t kVersionMask = 0x7FFF;  // the highest bit hides a version
  uint16_t most_version_ = 1;                       // 0 and 1 stand for none
};

}  // namespace

StatusOr<ImageKind> InspectImage(std::string_view image, const std::string& source) {
  Elf64_Ehdr header;
  if (image.size() < sizeof header) return ImageKind::kForeign;
  std::memcpy(&header, image.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_DYN || header.e_machine != kMachine) {
    return ImageKind::kForeign;
  }
  const Fault fault = Image(image).Check(header);
  if (fault.empty()) return ImageKind::kLoadable;
  return Error(kInvalidValue, fmt::format("{} is a damaged shared object: {}", source, fault))
      .Culprit(source)
      .Hint("copy or build the file again");
}

}  // namespace reprise::runtime
