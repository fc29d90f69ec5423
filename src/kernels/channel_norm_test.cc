// SPDX-License-Identifier: Apache-2.0
#include "kernels/channel_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace reprise::kernels {
namespace {

struct Sizes {
  int64_t n, c, h, w;
};

// By elements, however they are cut, come the bits that come by channels.
TEST(ChannelNorm, ElementsAreTheChannelsHoweverTheyAreCut) {
  std::mt19937 random(20261128);
  std::uniform_real_distribution<float> number(-3, 3);
  for (const Sizes& sizes :
       std::vector<Sizes>{{1, 1, 1, 2}, {1, 3, 5, 7}, {2, 5, 7, 7}, {3, 4, 1, 300}, {1, 2, 33, 31}}) {
    const int64_t shape[4] = {sizes.n, sizes.c, sizes.h, sizes.w};
    const int64_t count = sizes.n * sizes.c * sizes.h * sizes.w;
    const auto values = [&](int64_t many, bool positive) {
      std::vector<float> all(static_cast<size_t>(many));
      for (float& value : all) value = positive ? std::fabs(number(random)) : number(random);
      return all;
    };
    std::vector<float> x = values(count, false);
    std::vector<float> weight = values(sizes.c, false), bias = values(sizes.c, false);
    std::vector<float> mean = values(sizes.c, false), var = values(sizes.c, true);
    x[0] = NAN;
    x[static_cast<size_t>(count) - 1] = INFINITY;
    std::vector<float> by_channels(x.size()), by_elements(x.size());
    const auto vector_of = [&](std::vector<float>& data) {
      return MakeContiguous(data.data(), DType::kFloat, 1, &sizes.c);
    };
    const auto tensor_of = [&](std::vector<float>& data) {
      return MakeContiguous(data.data(), DType::kFloat, 4, shape);
    };
    const TensorRef self = tensor_of(x), w = vector_of(weight), b = vector_of(bias);
    const TensorRef m = vector_of(mean), v = vector_of(var);
    TensorRef out = tensor_of(by_channels);
    for (const bool is_affine : {true, false}) {
      BatchNormArgs args{.self = &self, .running_mean = &m, .running_var = &v, .out = &out, .eps = 1e-5};
      if (is_affine) {
        args.weight = &w;
        args.bias = &b;
      }
      out = tensor_of(by_channels);
      BatchNorm(args, {0, sizes.c});
      out = tensor_of(by_elements);
      for (const int64_t step : {count, int64_t{256}, int64_t{1}, int64_t{37}}) {
        std::fill(by_elements.begin(), by_elements.end(), -1.0F);
        for (int64_t at = 0; at < count; at += step) BatchNormElements(args, {at, std::min(count, at + step)});
        ASSERT_EQ(std::memcmp(by_elements.data(), by_channels.data(), x.size() * sizeof(float)), 0)
            << sizes.c << " x " << sizes.h << " x " << sizes.w << " by " << step;
      }
    }
  }
}

}  // namespace
}  // namespace reprise::kernels
