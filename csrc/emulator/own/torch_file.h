// What every file that uses torch begins with; it is compiled once for a version of torch.
#pragma once

#define OWN_WITHOUT_CONTEXT  // see torch_headers/ATen/Context.h

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/extension.h>

// Files that include torch's headers need not include these of C++ themselves.
#include <chrono>
#include <iomanip>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "torch_entry.h"
