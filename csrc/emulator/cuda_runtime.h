// Stands in for CUDA's header of this name when a .cu file is compiled for the CPU:
// put this directory first on the include path and link runtime/*.cpp. See README.md.
#pragma once

#include "device/atomics.h"
#include "device/barrier.h"
#include "device/bits.h"
#include "device/conversions.h"
#include "device/language.h"
#include "device/math.h"
#include "device/memory.h"
#include "device/special_functions.h"
#include "device/vector_types.h"
#include "device/warp.h"
#include "host/api.h"
#include "host/launch.h"
