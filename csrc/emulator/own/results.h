// The tensors that a function has returned. Include it once in a library.
#pragma once

#include <memory>
#include <vector>

#include "entry.h"

namespace own {

using Owners = std::vector<std::shared_ptr<void>>;

/// They live until the next call.
struct Results {
    std::vector<Value> values;
    Owners owners;
};

inline Results results;

}  // namespace own

extern "C" {

void own_forget_results(void) { own::results = {}; }

size_t own_result_count(void) { return own::results.values.size(); }

const own::Value* own_results(void) { return own::results.values.data(); }
}
