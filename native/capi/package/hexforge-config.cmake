# SPDX-License-Identifier: Apache-2.0
# hexforge::headers has QNN's headers; hexforge_LIBRARY_DIR is the folder of libQnnHtp.so and its siblings.
get_filename_component(hexforge_LIBRARY_DIR "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(hexforge_INCLUDE_DIR "${hexforge_LIBRARY_DIR}/../include/QNN" ABSOLUTE)
if(NOT TARGET hexforge::headers)
  add_library(hexforge::headers INTERFACE IMPORTED)
  set_target_properties(hexforge::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${hexforge_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
  foreach(name Htp Cpu Gpu Saver System)
    add_library(hexforge::Qnn${name} SHARED IMPORTED)
    set_target_properties(hexforge::Qnn${name} PROPERTIES IMPORTED_LOCATION "${hexforge_LIBRARY_DIR}/libQnn${name}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${hexforge_INCLUDE_DIR}")
  endforeach()
endif()
