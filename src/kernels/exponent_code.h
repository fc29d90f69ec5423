// SPDX-License-Identifier: Apache-2.0
//
// Floating numbers in two parts, without loss: their exponents, packed by how often each occurs, and all other bits.
//
// Exponent  the 8 bits behind the sign: of float32 and bfloat16 the whole exponent, of float16 it with the 3 highest
//           bits of the fraction. What is left, sign first, fills the other bytes of the number, lowest byte first.
// Code      exponents have ranks: those that are counted more often come first, equal ones by their value. Of 64
//           neighbours every rank takes as many bits as the largest of them, 0 to 8, lowest bits first.
// Stream    the widths of all groups of 64, a byte each, and then the groups, 8 bytes for each bit of their width: at
//           most 65 / 64 bytes for each number.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

inline constexpr int64_t kExponentGroup = 64;

/// Bytes that lie in two pieces of memory, the second of which goes on where the first one ends.
struct TwoPieces {
  uint8_t* first = nullptr;
  int64_t first_bytes = 0;
  uint8_t* second = nullptr;
  int64_t second_bytes = 0;

  int64_t bytes() const { return first_bytes + second_bytes; }
  /// \pre begin + count <= bytes()
  void Read(int64_t begin, int64_t count, uint8_t* to) const;
  void Write(int64_t begin, int64_t count, const uint8_t* from) const;
};

/// Bytes of the longest stream of `numbers`, a multiple of kExponentGroup.
constexpr int64_t MostExponentBytes(int64_t numbers) { return numbers + numbers / kExponentGroup; }

/// \param type   float32, float16 or bfloat16
/// \param range  counts numbers, here and below
void SplitExponents(DType type, const void* numbers, Range range, uint8_t* exponents, uint8_t* rest);
void JoinExponents(DType type, const uint8_t* exponents, const uint8_t* rest, Range range, void* numbers);

/// counts[e]: how many of the exponents are e.
void CountExponents(const uint8_t* exponents, int64_t numbers, int32_t* counts);

/// What JoinGroups puts together.
/// \param range   counts groups
/// \param widths  [group]
/// \param groups  [group, 64], of which the first 8 * width bytes count
void PackExponents(const uint8_t* exponents, const int32_t* counts, Range range, uint8_t* widths, uint8_t* groups);
/// \pre the stream fits.
void JoinGroups(const uint8_t* widths, const uint8_t* groups, int64_t count, const TwoPieces& stream);

/// Where the groups of a stream begin. A width beyond 8 counts as 8. \pre the pieces hold MostExponentBytes.
void FindGroups(const TwoPieces& stream, int64_t count, int64_t* begins);
/// \param range  counts groups
void UnpackExponents(const TwoPieces& stream, const int64_t* begins, const int32_t* counts, Range range,
                     uint8_t* exponents);

}  // namespace reprise::kernels
