# Toolchain for ARM64 Linux with Debian's cross compiler (scripts/setup --arm64). Tests run under QEMU's user emulation; which processor it
# plays is said with POCKETFLEET_QEMU_CPU when configuring.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# Hints of pkg-config would lead to the libraries of this machine.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
set(POCKETFLEET_QEMU_CPU max CACHE STRING "processor that tests see")
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64-static;-cpu;${POCKETFLEET_QEMU_CPU};-L;/")
