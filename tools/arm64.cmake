# CMake's toolchain for 64-bit ARM Linux with Debian's cross compiler (g++-aarch64-linux-gnu); tools/arm64.py gives HEXFORGE_ARM64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# Python.h asks for that architecture's pyconfig.h below usr/include; the compiler's own headers come first.
set(CMAKE_CXX_FLAGS_INIT "-idirafter $ENV{HEXFORGE_ARM64}/usr/include")
set(Python_INCLUDE_DIR "$ENV{HEXFORGE_ARM64}/usr/include/python3.11" CACHE PATH "")
