// When a kernel lets its dependents start, and when it waits for its predecessor.
//
// Stock: wait at entry, trigger at the end. Other values are for backends that start
// these kernels earlier; none of them changes what is computed.
#pragma once
#include "primitives.cuh"

#define AT_END 0
#define AT_ENTRY 1
#define AFTER_WAIT 2

#ifndef TRIGGER
#define TRIGGER AT_END
#endif

// Whether constants are loaded before the wait.
#ifndef LOADS_EARLY
#define LOADS_EARLY 0
#endif

// For tests: every warp stays for up to twice so many ns, at random, wherever another
// kernel might read too early or write too early.
#ifndef DELAYS
#define DELAYS 0
#endif

// For tests: leaves the wait out, which a test must find.
#ifndef NO_WAIT
#define NO_WAIT 0
#endif

__device__ __forceinline__ void dawdle() {
    if constexpr (DELAYS > 0) {
        const unsigned block =
            (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        unsigned drawn = noise() ^ (block * 0x9e3779b9u + threadIdx.x / 32 * 0x85ebca6bu);
        drawn = (drawn ^ drawn >> 16) * 0x7feb352du;
        drawn = (drawn ^ drawn >> 15) * 0x846ca68bu;
        pause((drawn ^ drawn >> 16) % DELAYS);
    }
}

__device__ __forceinline__ void begin_turn() {
    if constexpr (TRIGGER == AT_ENTRY) trigger_dependents();
    dawdle();
}

// All that kernels before this one wrote is there; nothing may be written before.
__device__ __forceinline__ void wait_turn() {
    if constexpr (!NO_WAIT) wait_for_predecessor();
    if constexpr (TRIGGER == AFTER_WAIT) trigger_dependents();
    dawdle();
}

__device__ __forceinline__ void end_turn() {
    dawdle();
    if constexpr (TRIGGER == AT_END) trigger_dependents();
    dawdle();
}
