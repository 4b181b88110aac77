// Stands in for the driver API's header of this name: tensor maps, which describe a
// tensor to the tensor memory accelerator.
#pragma once

#include <cstdint>

#include "host/driver.h"
