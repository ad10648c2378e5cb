// SPDX-License-Identifier: Apache-2.0
// 8-bit convolution on AMX: tiles of 32 pixels x 32 output channels, 64 input values at a time.
// The weights' packed layout is the one of the other instruction sets; integers are exact, so the bits are the same.
#include <immintrin.h>

#include "kernels/avx512/vector.h"
#include "kernels/shared/depthwise_tile.h"

namespace hexforge {
namespace {

constexpr int kRows = 16;                 // pixels of one tile
constexpr std::int64_t kChunkSteps = 16;  // k-steps of one tile: 64 bytes of input

// Shorter runs fill so little of a tile's 64 bytes that vectors are faster.

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// All eight tiles 16 rows of 64 bytes: 0 to 3 sums, 4 and 5 pixels, 6 and 7 weights.
void configure() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = kRows;
  }
  _tile_loadconfig(&config);
}

// Copies a run to a row of whole 64-byte chunks, zero behind its end, so that what the weights hold there is nothing.
inline void copy_run(const char* from, std::int64_t bytes, char* to, std::int64_t chunk_stride, __m512i& sum) {
  const auto copy = [&](__m512i x) {
    _mm512_store_si512(to, x);
    sum = _mm512_add_epi64(sum, _mm512_sad_epu8(x, _mm512_setzero_si512()));
  };
  for (; bytes >= 64; bytes -= 64, from += 64, to += chunk_stride) copy(_mm512_loadu_si512(from));
  if (bytes > 0) copy(_mm512_maskz_loadu_epi8((1ull << bytes) - 1, from));
}

// Panel of [groups of 16 pixels][taps][chunks][16 pixels][64 bytes], and the sum of each pixel's values.
void build_panel(const ConvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t chunks, const Scratch& scratch,
                 std::int32_t* sums) {
  Locator<8> locator(a, begin, scratch.copies);
  const std::int64_t group_bytes = a.taps * chunks * kRows * 64;
  for (std::int64_t pixel = begin; pixel < end; pixel += kRows) {
    const int count = static_cast<int>(std::min<std::int64_t>(kRows, end - pixel));
    char* group = scratch.panel + (pixel - begin) / kRows * group_bytes;
    for (int first = 0; first < count; first += kMostRows) {
      const int some = std::min(kMostRows, count - first);
      if (a.pointwise) {
        for (int i = 0; i < some; ++i) {
          scratch.rows[i] = static_cast<const char*>(a.x) + (pixel + first + i) * a.x_stride;
        }
      } else {
        locator.fill(scratch.rows, some);
      }
      for (int i = 0; i < some; ++i) {
        __m512i sum = _mm512_setzero_si512();
        for (std::int64_t t = 0; t < a.taps; ++t) {
          copy_run(scratch.rows[i * a.taps + t], a.run, group + t * chunks * kRows * 64 + (first + i) * 64, kRows * 64,
                   sum);
        }
        if (a.weight_offset) {
          sums[pixel - begin + first + i] = static_cast<std::int32_t>(_mm512_reduce_add_epi64(sum));
        }
      }
    }
  }
}

// Two tiles of inputs (the lower may be missing) times one or two vectors of output channels, summed over every chunk
// of every tap, to rows of kBlock sums.
inline void multiply(const char* upper, const char* lower, std::int64_t row, std::int64_t step, const char* weights,
                     std::int64_t weight_row, std::int64_t taps, std::int64_t steps, std::int64_t chunks, bool pair,
                     std::int32_t* upper_sums, std::int32_t* lower_sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  std::int64_t at = 0;
  for (std::int64_t t = 0; t < taps; ++t) {
    const char* w = weights + t * steps * weight_row;
    for (std::int64_t c = 0; c < chunks; ++c, at += step, w += kChunkSteps * weight_row) {
      _tile_loadd(4, upper + at, row);
      _tile_loadd(6, w, weight_row);
      _tile_dpbusd(0, 4, 6);
      if (pair) {
        _tile_loadd(7, w + kLane * 4, weight_row);
        _tile_dpbusd(1, 4, 7);
      }
      if (lower) {
        _tile_loadd(5, lower + at, row);
        _tile_dpbusd(2, 5, 6);
        if (pair) _tile_dpbusd(3, 5, 7);
      }
    }
  }
  _tile_stored(0, upper_sums, kBlock * 4);
  if (pair) _tile_stored(1, upper_sums + kLane, kBlock * 4);
  if (lower) {
    _tile_stored(2, lower_sums, kBlock * 4);
    if (pair) _tile_stored(3, lower_sums + kLane, kBlock * 4);
  }
}

// Rows of whole vectors, the table applied in registers: reading back what was just stored in pieces would stall.
template <int Vectors>
inline void store_whole(const ConvArgs& a, const std::int32_t (*sums)[kBlock], std::uint8_t* row, std::int64_t count,
                        std::int64_t channel, const std::int32_t* corrections) {
  const Avx512::Requantize r0(a, channel), r1(a, channel + (Vectors > 1 ? kLane : 0)),
      r2(a, channel + (Vectors > 2 ? 2 * kLane : 0)), r3(a, channel + (Vectors > 3 ? 3 * kLane : 0));
  const __m512i none = _mm512_setzero_si512();
  const __m512i t0 = a.table ? _mm512_loadu_si512(a.table) : none,
                t1 = a.table ? _mm512_loadu_si512(a.table + 64) : none,
                t2 = a.table ? _mm512_loadu_si512(a.table + 128) : none,
                t3 = a.table ? _mm512_loadu_si512(a.table + 192) : none;
  constexpr __mmask64 kMask = Vectors == 4 ? ~0ull : (1ull << (Vectors * kLane % 64)) - 1;
  for (std::int64_t i = 0; i < count; ++i, row += a.y_stride) {
    const __m512i correction = _mm512_set1_epi32(corrections ? corrections[i] : 0);
    const auto sum = [&](int vector) {
      return _mm512_add_epi32(_mm512_load_si512(sums[i] + vector * kLane), correction);
    };
    __m512i q = _mm512_castsi128_si512(r0.bytes(sum(0)));
    if constexpr (Vectors > 1) q = _mm512_inserti32x4(q, r1.bytes(sum(1)), 1);
    if constexpr (Vectors > 2) q = _mm512_inserti32x4(q, r2.bytes(sum(2)), 2);
    if constexpr (Vectors > 3) q = _mm512_inserti32x4(q, r3.bytes(sum(3)), 3);
    if (a.table) {
      q = _mm512_mask_blend_epi8(_mm512_movepi8_mask(q), _mm512_permutex2var_epi8(t0, q, t1),
                                 _mm512_permutex2var_epi8(t2, q, t3));
    }
    _mm512_mask_storeu_epi8(row, kMask, q);
  }
}

inline void store_rows(const ConvArgs& a, const std::int32_t (*sums)[kBlock], std::int64_t pixel, std::int64_t count,
                       std::int64_t block, std::int64_t vectors, const std::int32_t* corrections) {
  const std::int64_t channel = block * kBlock;
  const std::int64_t lanes = std::min<std::int64_t>(kBlock, a.out_channels - channel);
  std::uint8_t* row = static_cast<std::uint8_t*>(a.y) + pixel * a.y_stride + channel;
  if (lanes == vectors * kLane) {
    ConvArgs plain = a;
    if (a.residual) plain.table = nullptr;  // the table comes after the residual
    switch (vectors) {
      case 1: store_whole<1>(plain, sums, row, count, channel, corrections); break;
      case 2: store_whole<2>(plain, sums, row, count, channel, corrections); break;
      case 3: store_whole<3>(plain, sums, row, count, channel, corrections); break;
      default: store_whole<4>(plain, sums, row, count, channel, corrections); break;
    }
    if (a.residual) finish_rows<Avx512>(a, row, pixel, static_cast<int>(count), channel, lanes);
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      Avx512::store_u8(sums[i], a, channel, corrections ? corrections[i] : 0, row + i * a.y_stride, lanes);
      finish_rows<Avx512>(a, row + i * a.y_stride, pixel + i, 1, channel, lanes);
    }
  }
}

void conv_u8_amx(const ConvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t block_begin,
                 std::int64_t block_end, const Scratch& scratch) {
  if (a.run < kLeastTileRun) {
    run_conv<Avx512, 8>(a, begin, end, block_begin, block_end, scratch);
    return;
  }
  const std::int64_t chunks = (a.steps + kChunkSteps - 1) / kChunkSteps;
  // Whole chunks of pixels that follow each other are read where they are.
  const bool direct = a.pointwise && a.run % 64 == 0;
  const std::int64_t tile_bytes = kRows * 64, group_bytes = a.taps * chunks * tile_bytes;
  const std::int64_t whole = direct ? (end - begin) / (2 * kRows) * (2 * kRows) : 0;
  alignas(64) std::int32_t row_sums[kPanelPixels];
  if (whole < end - begin) build_panel(a, begin + whole, end, chunks, scratch, row_sums + whole);
  if (a.weight_offset) {
    for (std::int64_t i = 0; i < whole; ++i) {
      const char* row = static_cast<const char*>(a.x) + (begin + i) * a.x_stride;
      row_sums[i] = Avx512::sum_u8(&row, 1, a.run);
    }
    for (std::int64_t i = 0; i < end - begin; ++i) row_sums[i] *= a.weight_offset;
  }
  const std::int32_t* corrections = a.weight_offset ? row_sums : nullptr;
  configure();
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    const char* weights = static_cast<const char*>(a.weights) + block * a.taps * a.steps * kBlock * 4;
    const std::int64_t vectors = std::min<std::int64_t>(4, (a.out_channels - block * kBlock + kLane - 1) / kLane);
    const std::int64_t weight_row = vectors * kLane * 4;
    for (std::int64_t pixel = begin; pixel < end; pixel += 2 * kRows) {
      const std::int64_t count = std::min<std::int64_t>(2 * kRows, end - pixel);
      const bool here = pixel - begin < whole;
      const char* upper = here ? static_cast<const char*>(a.x) + pixel * a.x_stride
                               : scratch.panel + (pixel - begin - whole) / kRows * group_bytes;
      const char* lower = here ? upper + kRows * a.x_stride : upper + group_bytes;
      const std::int64_t row = here ? a.x_stride : 64, step = here ? 64 : tile_bytes;
      const bool two = count > kRows;
      alignas(64) std::int32_t sums[2 * kRows][kBlock];
      for (std::int64_t j = 0; j < vectors; j += 2) {
        multiply(upper, two ? lower : nullptr, row, step, weights + j * kLane * 4, weight_row, a.taps, a.steps, chunks,
                 j + 1 < vectors, sums[0] + j * kLane, sums[kRows] + j * kLane);
      }
      store_rows(a, sums, pixel, count, block, vectors, corrections ? corrections + (pixel - begin) : nullptr);
    }
  }
  _tile_release();
}

// 16-bit activations with weights of 8 bits: x + 32768 is 256 * high + low, two byte planes multiplied apart.
// int32 sums cannot overflow (65536 products of 255 * 128), so nothing is emptied in between.
void split_run(const char* from, std::int64_t count, char* low, char* high, std::int64_t chunk_stride) {
  alignas(64) std::uint8_t even[64];
  for (int i = 0; i < 64; ++i) even[i] = static_cast<std::uint8_t>(2 * i);
  const __m512i lows = _mm512_load_si512(even), highs = _mm512_add_epi8(lows, _mm512_set1_epi8(1));
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  for (; count >= 64; count -= 64, from += 128, low += chunk_stride, high += chunk_stride) {
    const __m512i x0 = _mm512_loadu_si512(from), x1 = _mm512_loadu_si512(from + 64);
    _mm512_store_si512(low, _mm512_permutex2var_epi8(x0, lows, x1));
    _mm512_store_si512(high, _mm512_xor_si512(_mm512_permutex2var_epi8(x0, highs, x1), flip));
  }
  if (count > 0) {
    const __mmask64 mask = (1ull << count) - 1;
    const __m512i x0 = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), from);
    const __m512i x1 = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask >> 32), from + 64);
    _mm512_store_si512(low, _mm512_permutex2var_epi8(x0, lows, x1));
    _mm512_store_si512(high,
                       _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(_mm512_permutex2var_epi8(x0, highs, x1), flip)));
  }
}

// (256 * high + low + bias) * multiplier to 16 bits: the sums and the bias are exact in float64.
inline void store_planes(const ConvArgs& a, const std::int32_t* low_sums, const std::int32_t* high_sums,
                         const double* bias, std::int64_t channel, std::int16_t* row, std::int64_t lanes) {
  const __m512d least = _mm512_set1_pd(a.low - a.zero_point), most = _mm512_set1_pd(a.high - a.zero_point);
  for (std::int64_t j = 0; j < lanes; j += 8) {
    const __m512d high = _mm512_cvtepi32_pd(_mm256_load_si256(reinterpret_cast<const __m256i*>(high_sums + j)));
    const __m512d low = _mm512_cvtepi32_pd(_mm256_load_si256(reinterpret_cast<const __m256i*>(low_sums + j)));
    const __m512d sum =
        _mm512_add_pd(_mm512_add_pd(_mm512_mul_pd(high, _mm512_set1_pd(256)), low), _mm512_load_pd(bias + j));
    __m512d f = _mm512_mul_pd(sum, _mm512_loadu_pd(a.multiplier + channel + j));
    f = _mm512_min_pd(_mm512_max_pd(f, least), most);
    const __m256i q = _mm256_add_epi32(_mm512_cvtpd_epi32(f), _mm256_set1_epi32(a.zero_point));
    const __mmask8 mask = static_cast<__mmask8>(lanes - j >= 8 ? 0xff : (1u << (lanes - j)) - 1);
    _mm256_mask_cvtepi32_storeu_epi16(row + j, mask, q);
  }
}

void conv_s16_amx(const ConvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t block_begin,
                  std::int64_t block_end, const Scratch& scratch) {
  if (!a.weights8 || a.run < kLeastTileRun) {
    run_conv<Avx512, 16>(a, begin, end, block_begin, block_end, scratch);
    return;
  }
  const std::int64_t steps = (a.run + 3) / 4, chunks = (steps + kChunkSteps - 1) / kChunkSteps;
  const std::int64_t tile_bytes = kRows * 64, plane_bytes = a.taps * chunks * tile_bytes;
  Locator<16> locator(a, begin, scratch.copies);
  for (std::int64_t first = begin; first < end; first += kMostRows) {
    const int some = static_cast<int>(std::min<std::int64_t>(kMostRows, end - first));
    if (a.pointwise) {
      for (int i = 0; i < some; ++i) scratch.rows[i] = static_cast<const char*>(a.x) + (first + i) * a.x_stride * 2;
    } else {
      locator.fill(scratch.rows, some);
    }
    for (int i = 0; i < some; ++i) {
      const std::int64_t at = first - begin + i;
      char* low = scratch.panel + at / kRows * 2 * plane_bytes + at % kRows * 64;
      for (std::int64_t t = 0; t < a.taps; ++t) {
        char* tap = low + t * chunks * tile_bytes;
        split_run(scratch.rows[i * a.taps + t], a.run, tap, tap + plane_bytes, tile_bytes);
      }
    }
  }
  configure();
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    const char* weights = static_cast<const char*>(a.weights8) + block * a.taps * steps * kBlock * 4;
    const std::int64_t channel = block * kBlock, lanes = std::min<std::int64_t>(kBlock, a.out_channels - channel);
    const std::int64_t vectors = (lanes + kLane - 1) / kLane, weight_row = vectors * kLane * 4;
    alignas(64) double bias[kBlock];
    for (std::int64_t c = 0; c < kBlock; ++c) {
      bias[c] = static_cast<double>(a.bias[channel + c]) - 32768.0 * a.weight_sums[channel + c];
    }
    for (std::int64_t pixel = begin; pixel < end; pixel += kRows) {
      const std::int64_t count = std::min<std::int64_t>(kRows, end - pixel);
      const char* low = scratch.panel + (pixel - begin) / kRows * 2 * plane_bytes;
      alignas(64) std::int32_t sums[2][kRows][kBlock];
      for (std::int64_t j = 0; j < vectors; j += 2) {
        multiply(low, low + plane_bytes, 64, tile_bytes, weights + j * kLane * 4, weight_row, a.taps, steps, chunks,
                 j + 1 < vectors, sums[0][0] + j * kLane, sums[1][0] + j * kLane);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        std::int16_t* row = static_cast<std::int16_t*>(a.y) + (pixel + i) * a.y_stride + channel;
        store_planes(a, sums[0][i], sums[1][i], bias, channel, row, lanes);
        finish_row16<Avx512>(a, row, pixel + i, channel, lanes);
      }
    }
  }
  _tile_release();
}

}  // namespace

const ConvKernels kConvAmx = [] {
  ConvKernels kernels = kernels_of<Avx512>();
  kernels.u8 = conv_u8_amx;
  kernels.s16 = conv_s16_amx;
  kernels.depthwise_u8 = depthwise_u8_avx512;
  kernels.all_blocks = true;
  return kernels;
}();

}  // namespace hexforge
