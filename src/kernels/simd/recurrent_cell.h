// SPDX-License-Identifier: Apache-2.0
//
// What follows the products of a step of an LSTM or GRU (kernels/recurrent.h), for some units of some entries.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// Units that functions take at a time: a multiple of it.
inline constexpr int64_t kCellUnits = 16;

/// Rows are entries. Each has, gate behind gate, `units` numbers of each gate in the source's order.
template <class T>
struct CellRows {
  int64_t rows = 0;
  int64_t units = 0;          ///< a multiple of kCellUnits
  T* sums = nullptr;          ///< [rows, gates * units], in: products with the hidden state; out: the gates
  const T* x = nullptr;       ///< input part
  int64_t x_row = 0;          ///< elements from entry to entry,
  int64_t x_gate = 0;         ///<   from gate to gate
  const T* bias = nullptr;    ///< [gates * units]
  const T* before = nullptr;  ///< hidden state before the step
  T* after = nullptr;         ///< and behind it
  T* cell = nullptr;          ///< LSTM: cell state, in and out
  int64_t state_row = 0;      ///< elements from entry to entry of the states
  T* extra = nullptr;         ///< [rows, units], out: LSTM tanh(c), GRU the hidden part of n with its bias
  bool saves = true;          ///< false: nobody wants the gates and `extra`, whose memory may hold anything afterwards
  int forget = 1;             ///< LSTM: which gate
  int candidate = 2;
};

/// Gates i, f, g, o, or with f and g exchanged as it says.
void LstmCells(const CellRows<float>& cells);
/// Gates r, z, n.
void GruCells(const CellRows<float>& cells);

}  // namespace reprise::kernels::simd
