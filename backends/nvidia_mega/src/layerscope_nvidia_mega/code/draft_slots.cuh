// How the blocks of a launch agree on the best token of all, in one trip: each hands
// its best to all others, in a slot of its own, and reads the slots of all others. A
// slot is written once a launch, and says in which, so it need not be cleared. Waits
// have a deadline.
#pragma once
#include "keys.cuh"
#include "mega_primitives.cuh"

// For tests: a block that never comes.
#ifndef ABSENT
#define ABSENT -1
#endif

constexpr unsigned kAll = 0xffffffffu;
constexpr int kRounds = (BLOCKS + 31) / 32;  // of slots that a lane reads
constexpr int kLooks = 16;  // between two at the clock

// A word in a slot: 32 bits of the logit, 20 of the token, lower ones first, and 12 of
// the number of the launch. Words of one launch compare as their keys do.
constexpr int kLaunchBits = 12;
constexpr unsigned kLaunches = 1u << kLaunchBits, kTokens = 1u << (32 - kLaunchBits);

__device__ __forceinline__ Word word_of(Key key, unsigned launch) {
    const unsigned low = (kTokens - 1 - token_of(key)) << kLaunchBits | launch;
    return key >> 32 << 32 | low;
}

__device__ __forceinline__ unsigned token_in(Word word) {
    return kTokens - 1 - ((unsigned)word >> kLaunchBits);
}

__device__ __forceinline__ Key best_of_warp(Key key) {
    const unsigned high = key >> 32;
    const unsigned best = __reduce_max_sync(kAll, high);
    const unsigned low = high == best ? (unsigned)key : 0;
    return (Key)best << 32 | __reduce_max_sync(kAll, low);
}

struct SlotMemory {
    Word* words;         // [token][request][block]
    unsigned* launches;  // the number of the launch before
    int* abort;          // not 0 once any wait has given up
    int deadline_ns;
};

struct Slots : SlotMemory {
    int requests;
    unsigned long long end_ns;  // one deadline for all waits of the launch

    __device__ __forceinline__ Slots(const SlotMemory& memory, int requests)
        : SlotMemory(memory), requests(requests), end_ns(nanoseconds() + deadline_ns) {}

    __device__ __forceinline__ Word* of(int token, int request) const {
        return words + (token * requests + request) * BLOCKS;
    }

    // A number that the launch before did not have; never 0.
    __device__ __forceinline__ unsigned launch() const {
        return acquire(launches) % (kLaunches - 1) + 1;
    }

    // Of a launch that ended early nothing must be there when its number comes again.
    __device__ __forceinline__ void clear(int tokens) const {
        for (int i = threadIdx.x; i < tokens * requests; i += blockDim.x)
            hand_over(words + i * BLOCKS + blockIdx.x, 0);
    }

    // The best of all blocks, by a warp; false, and `abort` is set, where it gives up.
    __device__ __forceinline__ bool best_of_all(
            Word& best, const Word* row, unsigned launch) const {
        const int lane = threadIdx.x % 32;
        for (int looks = 1;; ++looks) {
            Word words[kRounds];
            bool is_missing = false;
#pragma unroll
            for (int round = 0; round < kRounds; ++round) {
                const int block = 32 * round + lane;
                words[round] = look_at(row + block, block < BLOCKS);
            }
            best = 0;
#pragma unroll
            for (int round = 0; round < kRounds; ++round) {
                const bool is_there = words[round] % kLaunches == launch;
                is_missing |= 32 * round + lane < BLOCKS && !is_there;
                best = greater(best, words[round]);
            }
            if (!__ballot_sync(kAll, is_missing)) break;
            if (looks % kLooks == 0) {
                const bool is_late = look_at_flag(abort) || nanoseconds() > end_ns;
                if (__ballot_sync(kAll, is_late)) {
                    if (lane == 0) raise_flag(abort);
                    return false;
                }
            }
        }
        best = best_of_warp(best);
        return true;
    }
};
