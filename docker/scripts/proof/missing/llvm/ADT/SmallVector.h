#pragma once
#include "llvm/ADT/ArrayRef.h"
