#include "loops_body.h"

namespace hexforge {
const Loops kLoopsAvx2 = loops_here();
}  // namespace hexforge
