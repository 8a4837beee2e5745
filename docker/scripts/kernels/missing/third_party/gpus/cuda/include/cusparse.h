// gpu_prim.h takes complex numbers from the real one. The wheel with that has some hundred megabytes.
#pragma once
#include "cuComplex.h"
