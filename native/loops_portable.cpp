#include "loops_body.h"

namespace hexforge {
const Loops kLoopsPortable = loops_here();
}  // namespace hexforge
