# Every entry point. `make help` lists them.
SHELL := /bin/bash
BUILD := build
CC ?= gcc
CXX ?= g++
CLANG ?= clang-19
CLANG_FORMAT ?= clang-format-19
CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -I.
CXXFLAGS := -std=c++20 -O2 -g -Wall -Wextra -Werror -I.
PROGRAMS :=

.DEFAULT_GOAL := build

include $(wildcard */build.mk */*/build.mk)

.PHONY: build
build: $(PROGRAMS) ## compile the programs and the BPF objects
