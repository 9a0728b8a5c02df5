// The clock that all processors of the device share. Tests on a CPU put an emulation of
// this file in its place, as of primitives.cuh.
#pragma once

// In ns. It moves in steps, of 32 ns on some devices.
__device__ __forceinline__ unsigned long long global_time() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}
