#ifndef SHAPE_H
#define SHAPE_H
#include <assert.h>

static inline int shape_area(int width, int height) {
  assert(width >= 0 && height >= 0);
  return width * height;
}

#endif
