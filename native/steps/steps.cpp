// SPDX-License-Identifier: Apache-2.0
#include "steps/steps.h"

#include <mutex>

namespace hexforge {

void register_steps() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_conv_steps();
    register_elementwise_steps();
    register_move_steps();
    register_pool_steps();
    register_norm_steps();
    register_matmul_steps();
    register_resize_steps();
    register_reduce_steps();
    register_softmax_steps();
    register_index_steps();
    register_logic_steps();
    register_sample_steps();
    register_detection_steps();
    register_recurrent_steps();
    register_wide_steps();
    register_packed_steps();
  });
}

}  // namespace hexforge
