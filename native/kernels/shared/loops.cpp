// SPDX-License-Identifier: Apache-2.0
// The table of loops.h, compiled once for each instruction set (CMakeLists.txt): vectorisation on and contraction off,
// so that every set does the same float operations in the same order.
#include "kernels/shared/loops_packed.h"
#include "kernels/shared/loops_packed_scaled.h"
#include "kernels/shared/loops_pointwise.h"
#include "kernels/shared/loops_products.h"
#include "kernels/shared/loops_recurrent.h"
#include "kernels/shared/loops_reductions.h"
#include "kernels/shared/loops_rows.h"
#include "kernels/shared/loops_vision.h"
#if defined(__AVX512VBMI__)
#include "kernels/avx512/loops.h"
#endif

namespace hexforge {
namespace {

constexpr Loops kShared{
    .binary_u8 = binary<float, std::uint8_t>,
    .binary_s16 = binary<double, std::int16_t>,
    .binary_f32 = binary_f32,
    .table_u8 = table<std::uint8_t, std::uint8_t>,
    .table_u8_s16 = table<std::uint8_t, std::int16_t>,
    .table_s16 = table<std::int16_t, std::int16_t>,
    .table_s16_u8 = table<std::int16_t, std::uint8_t>,
    .quantize_u8 = quantize<std::uint8_t>,
    .quantize_s16 = quantize<std::int16_t>,
    .dequantize_u8 = dequantize<std::uint8_t>,
    .dequantize_s16 = dequantize<std::int16_t>,
    .max_u8 = max_rows<std::uint8_t>,
    .max_s16 = max_rows<std::int16_t>,
    .max_f32 = max_rows<float>,
    .mean_u8 = mean_rows<float, std::uint8_t>,
    .mean_s16 = mean_rows<double, std::int16_t>,
    .softmax_u8 = softmax<std::uint8_t>,
    .softmax_s16 = softmax<std::int16_t>,
    .moments_u8 = moments<std::uint8_t>,
    .moments_s16 = moments<std::int16_t>,
    .channel_moments_u8 = channel_moments<std::uint8_t>,
    .channel_moments_s16 = channel_moments<std::int16_t>,
    .normalize_u8 = normalize<std::uint8_t>,
    .normalize_s16 = normalize<std::int16_t>,
    .table_f32 = table_f32,
    .mean_f32 = mean_f32,
    .piecewise_f32 = piecewise_f32,
    .softmax_rows_f32 = softmax_rows_f32,
    .normalize_rows_f32 = normalize_rows_f32,
    .channel_totals_f32 = channel_totals_f32,
    .normalize_pixels_f32 = normalize_pixels_f32,
    .transpose_f32 = transpose_f32,
    .normalize_f32 = normalize_f32,
    .round_half = round_half,
    .widen_half = widen_half,
    .narrow_half = narrow_half,
    .narrow_matrix_half = narrow_matrix_half,
    .widen_bytes = widen_bytes,
    .add_rows_u8 = add_rows<std::uint8_t, std::int32_t>,
    .add_rows_s16 = add_rows<std::int16_t, double>,
    .add_rows_s16_u8 = add_rows_of_bytes,
    .hmx_columns = hmx_columns,
    .add_slices_exact = add_slices<true>,
    .add_slices = add_slices<false>,
    .lstm_cells = lstm_cells,
    .gru_gates = gru_gates,
    .gru_states = gru_states,
    .dot_2x4 = dot_2x4,
    .winograd_cells = winograd_cells,
    .packed_row_f32 = packed_row_f32,
    .packed_rows_f32 = packed_rows_f32,
    .few_rows_f32 = few_rows_f32,
    .add_bias_f32 = add_bias_f32,
    .packed_row_bytes = packed_row_bytes,
    .packed_row_scaled = packed_row_scaled,
    .packed_rows_scaled = packed_rows_scaled,
    .packed_row_units = packed_row_units,
    .packed_rows_units = packed_rows_units,
    .to_units = to_units,
    .pair_rows = pair_rows,
    .round_totals_u8 = round_totals<std::uint8_t>,
    .round_totals_s16 = round_totals<std::int16_t>,
    .unpack_bytes = unpack_integers<4>,
    .unpack_words = unpack_integers<2>,
    .resize_u8 = resize<std::uint8_t, float>(),
    .resize_s16 = resize<std::int16_t, double>(),
    .resize_f32 = resize<float, float>(),
    .blend_u8_f64 = blend<std::uint8_t, double>,
#if defined(__AVX512VBMI__)
    .softmax_u8_rows16 = softmax_rows16,
    .interleave3 = interleave3,
#endif
};

#if defined(__AVX512VBMI__)
constexpr Loops with_hand_made(Loops all) {
  all.table_u8 = table_u8_vbmi;
  all.hmx_columns = hmx_columns_vnni;
  all.softmax_u8 = softmax_short<std::uint8_t>;
  all.softmax_s16 = softmax_short<std::int16_t>;
  return all;
}
#endif

}  // namespace

namespace HEXFORGE_SET {
#if defined(__AVX512VBMI__)
const Loops kLoops = with_hand_made(kShared);
#else
const Loops kLoops = kShared;
#endif
}  // namespace HEXFORGE_SET
}  // namespace hexforge
