/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

#define MAX_GAPS 1024
