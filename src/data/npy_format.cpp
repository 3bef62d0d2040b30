#include "data/npy_format.hpp"

#include "core/message.hpp"
#include "data/npy_header.hpp"
#include "runtime/session.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace accel::detail {
namespace {

static_assert(std::endian::native == std::endian::little,
              "byte orders of files are told apart for such machines alone");

struct Type {
  std::string_view name;  // kind and bytes, as NumPy writes them behind the byte order
  c10::ScalarType dtype;
};
constexpr std::array kTypes{
    Type{"b1", c10::ScalarType::Bool},         Type{"i1", c10::ScalarType::Char},
    Type{"i2", c10::ScalarType::Short},        Type{"i4", c10::ScalarType::Int},
    Type{"i8", c10::ScalarType::Long},         Type{"u1", c10::ScalarType::Byte},
    Type{"u2", c10::ScalarType::UInt16},       Type{"u4", c10::ScalarType::UInt32},
    Type{"u8", c10::ScalarType::UInt64},       Type{"f2", c10::ScalarType::Half},
    Type{"f4", c10::ScalarType::Float},        Type{"f8", c10::ScalarType::Double},
    Type{"c8", c10::ScalarType::ComplexFloat}, Type{"c16", c10::ScalarType::ComplexDouble},
};
constexpr std::size_t kAlignment = 64;  // of the values in a file, as NumPy has it

c10::ScalarType dtype_of(const FilePlace& place, const std::string& type) {
  const std::string_view order = std::string_view(type).substr(0, 1);
  for (const Type& known : kTypes)
    if (type.size() > 1 && std::string_view(type).substr(1) == known.name &&
        std::string_view("<>|=").find(order) != std::string_view::npos)
      return known.dtype;
  place.fail("an array of bool, integers, floating or complex numbers", cat("dtype '", type, "'"),
             "convert it before it is saved, as in numpy.save(file, array.astype(numpy.float32))");
}

}  // namespace

at::Tensor read_npy(const FilePlace& place, const FileBytes& file) {
  NpyHeader header = parse_npy_header(place, file.bytes);
  const c10::ScalarType dtype = dtype_of(place, header.type);
  const std::size_t found = file.bytes.size() - header.data_at;
  std::size_t length = 0;
  if (!bytes_of_shape(header.shape, c10::elementSize(dtype), length) || length != found)
    place.fail(cat("an array of shape ", c10::IntArrayRef(header.shape), " and dtype '", header.type, "'"),
               cat(found, " bytes for it"),
               found < length ? "the file was cut short: copy or save it again" : "save one array in each file");
  // The values of an array in Fortran order are those of its transpose in C order.
  if (header.fortran_order) std::reverse(header.shape.begin(), header.shape.end());
  at::Tensor tensor = tensor_over(file, header.data_at, header.shape, dtype, header.type[0] == '>');
  if (!header.fortran_order) return tensor;
  std::vector<std::int64_t> dimensions;
  for (std::int64_t i = tensor.dim(); i > 0; --i) dimensions.push_back(i - 1);
  return tensor.permute(dimensions).contiguous();
}

std::string npy_header(const char* call, const at::Tensor& tensor) {
  const auto* const type = std::find_if(kTypes.begin(), kTypes.end(),
                                        [&](const Type& known) { return known.dtype == tensor.scalar_type(); });
  if (type == kTypes.end())
    job_usage_error(call, cat("expected a tensor of a dtype that NumPy has, found ",
                              c10::toString(tensor.scalar_type()), "; convert it, as in tensor.to(at::kFloat)"));
  std::string shape;
  for (const std::int64_t size : tensor.sizes()) shape += cat(size, ", ");
  // (3, 4), and (3,) of one dimension.
  if (tensor.dim() > 0) shape.resize(shape.size() - (tensor.dim() == 1 ? 1 : 2));
  std::string dict = cat("{'descr': '", tensor.element_size() == 1 ? '|' : '<', type->name,
                         "', 'fortran_order': False, 'shape': (", shape, "), }");
  const std::size_t before = 10;  // magic, version, and two bytes for the length
  dict.resize((before + dict.size() + kAlignment) / kAlignment * kAlignment - before, ' ');
  dict.back() = '\n';
  return cat("\x93NUMPY\x01", '\0', static_cast<char>(dict.size() % 256), static_cast<char>(dict.size() / 256), dict);
}

at::Tensor npy_ready(const char* call, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.is_quantized())
    job_usage_error(call, cat("expected dense tensors, found ", tensor.defined() ? "another kind" : "an undefined one",
                              "; convert it, as in tensor.to_dense()"));
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace accel::detail
