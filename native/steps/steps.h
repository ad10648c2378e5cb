// SPDX-License-Identifier: Apache-2.0
// Registration of every family of steps.
#pragma once

namespace hexforge {

void register_steps();  // all of them, once

void register_conv_steps();
void register_elementwise_steps();
void register_move_steps();
void register_pool_steps();
void register_norm_steps();
void register_matmul_steps();
void register_resize_steps();
void register_reduce_steps();
void register_softmax_steps();
void register_index_steps();
void register_logic_steps();
void register_sample_steps();
void register_detection_steps();
void register_recurrent_steps();
void register_wide_steps();
void register_packed_steps();

}  // namespace hexforge
