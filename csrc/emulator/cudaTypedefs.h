// Stands in for CUDA's header of this name: the driver's functions as a launcher gets them
// from cudaGetDriverEntryPointByVersion.
#pragma once

#include "cuda.h"

using PFN_cuTensorMapEncodeTiled_v12000 = decltype(&cuTensorMapEncodeTiled);
using PFN_cuTensorMapEncodeTiled = PFN_cuTensorMapEncodeTiled_v12000;
