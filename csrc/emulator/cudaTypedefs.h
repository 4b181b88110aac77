// Stands in for CUDA's header of this name: the types of the driver functions that a
// launcher gets from cudaGetDriverEntryPointByVersion.
#pragma once

#include "cuda.h"

using PFN_cuTensorMapEncodeTiled_v12000 = decltype(&cuTensorMapEncodeTiled);
using PFN_cuTensorMapEncodeTiled = PFN_cuTensorMapEncodeTiled_v12000;
