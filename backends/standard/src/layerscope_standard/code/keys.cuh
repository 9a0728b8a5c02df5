// What tokens of a draft are compared by.
#pragma once
#include "product.cuh"

typedef unsigned long long Key;

// Orders as (logit, lower token first); 0 is below all.
__device__ __forceinline__ Key key_of(float logit, int token) {
    const unsigned bits = __float_as_uint(logit + 0.0f);  // -0 is as large as 0
    const unsigned ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (Key)ordered << 32 | (0xffffffffu - (unsigned)token);
}

__device__ __forceinline__ unsigned token_of(Key key) {
    return 0xffffffffu - (unsigned)(key & 0xffffffffu);
}

__device__ __forceinline__ Key greater(Key a, Key b) { return a > b ? a : b; }
