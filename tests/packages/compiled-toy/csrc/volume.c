#include "shape.h"

int volume(int width, int height, int depth) { return shape_area(shape_area(width, height), depth); }
