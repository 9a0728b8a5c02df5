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

__device__ __forceinline__ void begin_turn() {
    if constexpr (TRIGGER == AT_ENTRY) trigger_dependents();
}

// All that kernels before this one wrote is there; nothing may be written before.
__device__ __forceinline__ void wait_turn() {
    wait_for_predecessor();
    if constexpr (TRIGGER == AFTER_WAIT) trigger_dependents();
}

__device__ __forceinline__ void end_turn() {
    if constexpr (TRIGGER == AT_END) trigger_dependents();
}
