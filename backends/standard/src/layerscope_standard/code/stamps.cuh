// When each block of a kernel begins, has waited, lets dependents start, and ends.
//
// Included before everything else where that is asked for, and takes the place of the
// steps of turns.cuh. So the kernels themselves, as they are timed, have none of it.
//
// The first thread of a block speaks for it. A block that returns early leaves its begin.
#pragma once
#include "global_time.cuh"
#include "primitives.cuh"

struct Stamps {
    unsigned long long begun, waited, triggered, ended;  // 0 of what did not happen
};

extern "C" {
__device__ Stamps stamps[STAMPED_BLOCKS];
}

namespace stamping {

__shared__ Stamps own;  // of the block; only its first thread looks at it

__device__ __forceinline__ Stamps& kept() {
    return stamps[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x];
}

// Kept at once: nothing of an earlier launch may stay where a block returns early.
__device__ __forceinline__ void begin() {
    if (threadIdx.x != 0) return;
    own = {global_time(), 0, 0, 0};
    kept() = own;
}

// Only the first time: a kernel may wait again where a thread might not have yet.
__device__ __forceinline__ void stamp(unsigned long long Stamps::*what) {
    if (threadIdx.x == 0 && own.*what == 0) own.*what = global_time();
}

__device__ __forceinline__ void end() {
    if (threadIdx.x != 0) return;
    own.ended = global_time();
    kept() = own;
}

}  // namespace stamping

// A macro is not expanded within itself: the names within are those of the functions.
#define wait_for_predecessor() \
    (wait_for_predecessor(), stamping::stamp(&Stamps::waited))
#define trigger_dependents() \
    (stamping::stamp(&Stamps::triggered), trigger_dependents())
#include "turns.cuh"
#define begin_turn() (stamping::begin(), begin_turn())
#define end_turn() (end_turn(), stamping::end())
