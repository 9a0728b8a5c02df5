// Which rows go to which experts, as `align` writes it and the experts read it.
//
// int[4]: how many experts have rows, and padding. Then of each of them, in order of
// their ids, int[12]: the expert, how many rows, padding, and its pairs. A pair is
// row * top_k + place, and names a row of the step with one of its experts.
#pragma once
#include "product.cuh"

constexpr int kHead = 4;
constexpr int kEntry = 12;
constexpr int kPairs = 4;  // where in an entry the pairs begin
