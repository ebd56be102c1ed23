"""Files in llama.cpp's format, written once as folders of what they stand for."""
