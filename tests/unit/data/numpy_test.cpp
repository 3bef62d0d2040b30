#include <accel/numpy.hpp>
#include <accel/tensor_dataset.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/zeros.h>
#include "support/temporary_folder.hpp"
#include "unit/data/dataset_checks.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

using accel::load_npy;
using accel::load_npz;
using accel::save_npy;
using accel::save_npz;
using accel::test::error_of;
using accel::test::TemporaryFolder;
using accel::test::values;

namespace {

/// A file as NumPy wrote it; see tests/golden/numpy_files.py.
std::string golden(const std::string& name) {
  static const auto files = [] {
    std::ifstream file(ACCEL_NUMPY_FILES);
    return nlohmann::json::parse(file).at("files");
  }();
  const auto digits = files.at(name).get<std::string>();
  std::string content;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    content += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return content;
}

std::string content_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

at::Tensor read(const std::string& content) {
  const TemporaryFolder folder;
  return load_npy(folder.write("array.npy", content));
}

std::string refusal(const std::string& content) {
  const TemporaryFolder folder;
  const std::string file = folder.write("array.npy", content);
  return error_of<accel::DataError>([&] { (void)load_npy(file); }, folder.path());
}

std::string npz_refusal(const std::string& content) {
  const TemporaryFolder folder;
  const std::string file = folder.write("arrays.npz", content);
  return error_of<accel::DataError>([&] { (void)load_npz(file); }, folder.path());
}

at::Tensor grid() {
  return at::arange(6, at::kLong).reshape({2, 3});
}

const std::map<std::string, at::ScalarType> kDtypes{
    {"bool", at::kBool},     {"int8", at::kChar},    {"int16", at::kShort},   {"int32", at::kInt},
    {"int64", at::kLong},    {"uint8", at::kByte},   {"uint16", at::kUInt16}, {"uint32", at::kUInt32},
    {"uint64", at::kUInt64}, {"float16", at::kHalf}, {"float32", at::kFloat}, {"float64", at::kDouble},
};

}  // namespace

TEST_CASE("arrays of each dtype are read as NumPy wrote them, and written back byte for byte") {
  const TemporaryFolder folder;
  for (const auto& [name, dtype] : kDtypes) {
    CAPTURE(name);
    const at::Tensor tensor = read(golden(name));
    CHECK((tensor.scalar_type() == dtype));
    CHECK(tensor.to(at::kLong).equal(dtype == at::kBool ? grid().remainder(2) : grid() + 1));
    save_npy(folder / "again.npy", tensor);
    CHECK(content_of(folder / "again.npy") == golden(name));
  }
}

TEST_CASE("complex arrays are read and written back") {
  const TemporaryFolder folder;
  const at::Tensor expected = at::complex(grid().to(at::kDouble), grid().to(at::kDouble) + 0.5);
  for (const auto& [name, dtype] : {std::pair("complex64", at::kComplexFloat), {"complex128", at::kComplexDouble}}) {
    const at::Tensor tensor = read(golden(name));
    CHECK((tensor.scalar_type() == dtype));
    CHECK(tensor.to(at::kComplexDouble).equal(expected));
    save_npy(folder / "again.npy", tensor.conj().conj());
    CHECK(content_of(folder / "again.npy") == golden(name));
    save_npy(folder / "conjugated.npy", tensor.conj());
    CHECK(load_npy(folder / "conjugated.npy").equal(tensor.conj().resolve_conj()));
  }
}

TEST_CASE("the other byte order and Fortran order become those of tensors") {
  const at::Tensor real = read(golden("big_endian_float64"));
  CHECK((real.scalar_type() == at::kDouble));
  CHECK(real.equal(grid().to(at::kDouble) + 0.25));
  CHECK(read(golden("big_endian_complex64"))
            .to(at::kComplexDouble)
            .equal(at::complex(grid().to(at::kDouble), grid().to(at::kDouble) + 0.5)));
  const at::Tensor fortran = read(golden("fortran"));
  CHECK(fortran.equal(at::arange(24, at::kInt).reshape({2, 3, 4})));
  CHECK(fortran.is_contiguous());
}

TEST_CASE("shapes without dimensions or rows, and each version of the format, are read") {
  const TemporaryFolder folder;
  CHECK(read(golden("no_dimensions")).dim() == 0);
  CHECK(read(golden("no_dimensions")).item<float>() == 2.5F);
  CHECK(read(golden("no_rows")).sizes() == at::IntArrayRef({0, 3}));
  for (const char* name : {"one_dimension", "version_2", "version_3"})
    CHECK(values<std::int16_t>(read(golden(name))) == std::vector<std::int16_t>{0, 1, 2, 3});
  for (const char* name : {"no_dimensions", "no_rows", "one_dimension"}) {
    save_npy(folder / "again.npy", read(golden(name)));
    CHECK(content_of(folder / "again.npy") == golden(name));
  }
}

TEST_CASE("a large array is mapped: changes stay in memory, and its file may be replaced") {
  const TemporaryFolder folder;
  const std::string file = folder / "large.npy";
  const at::Tensor expected = at::arange(std::int64_t{1} << 18, at::kLong);
  save_npy(file, expected);
  at::Tensor tensor = load_npy(file);
  CHECK(tensor.equal(expected));
  tensor.add_(1);
  CHECK(load_npy(file).equal(expected));
  save_npy(file, tensor);
  CHECK(load_npy(file).equal(expected + 1));
  CHECK(tensor.equal(expected + 1));
  std::filesystem::remove(file);
  CHECK(accel::TensorDataset(tensor).get_batch(std::vector<std::size_t>{5, 3}).equal(at::arange(6, 2, -2, at::kLong)));
}

TEST_CASE("archives are read, stored or compressed, and are data sets") {
  const TemporaryFolder folder;
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    const auto tensors = load_npz(folder.write(name, golden(name)));
    CHECK(tensors.size() == 2);
    CHECK(tensors.at("x").equal(at::arange(40, at::kFloat).reshape({10, 4})));
    CHECK(tensors.at("y").equal(at::arange(10, at::kLong)));
    const accel::TensorDataset dataset(tensors);
    const auto alone = accel::test::batches_of(dataset, 0);
    const auto threads = accel::test::batches_of(dataset, 2);
    REQUIRE(alone.size() == 4);
    REQUIRE(threads.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(alone[i].at("x").equal(threads[i].at("x")));
      CHECK(alone[i].at("x").select(1, 0).equal(alone[i].at("y") * 4));
    }
  }
}

TEST_CASE("archives that are written are read again, and compressed ones are smaller") {
  const TemporaryFolder folder;
  const std::map<std::string, at::Tensor> tensors{{"zeros", at::zeros({1000})}, {"grid", grid()}, {"a/b", grid().t()}};
  save_npz(folder / "stored.npz", tensors);
  save_npz(folder / "compressed.npz", tensors, {.compressed = true});
  for (const char* name : {"stored.npz", "compressed.npz"}) {
    const auto again = load_npz(folder / name);
    CHECK(again.size() == 3);
    for (const auto& [key, tensor] : tensors) CHECK(again.at(key).equal(tensor));
  }
  CHECK(std::filesystem::file_size(folder / "stored.npz") > 4000);
  CHECK(std::filesystem::file_size(folder / "compressed.npz") < 1500);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
}

TEST_CASE("files that are no arrays, or not whole, are refused") {
  CHECK(refusal("plain text, long enough") ==
        "accel[0/1] load_npy: expected a .npy file, which begins with \\x93NUMPY and a version in array.npy, found "
        "'plain te'; save it again with numpy.save");
  const std::string whole = golden("float32");
  CHECK(refusal(whole.substr(0, 40)) ==
        "accel[0/1] load_npy: expected a header of 128 bytes in array.npy, found the end of the file after 40 bytes; "
        "the file was cut short: copy or save it again");
  CHECK(refusal(whole.substr(0, 9)).find("found the end of the file after 9 bytes;") != std::string::npos);
  CHECK(refusal(whole.substr(0, whole.size() - 1)) ==
        "accel[0/1] load_npy: expected an array of shape [2, 3] and dtype '<f4' in array.npy, found 23 bytes for it; "
        "the file was cut short: copy or save it again");
  CHECK(refusal(whole + "x").find("found 25 bytes for it; save one array in each file") != std::string::npos);
  std::string version = whole;
  version[6] = 9;
  CHECK(refusal(version).find("expected format version 1, 2 or 3 in array.npy, found 9;") != std::string::npos);
  std::string header = whole;
  header.replace(header.find("'descr'"), 7, "'other'");
  CHECK(refusal(header).find("expected a header with descr, fortran_order and shape in array.npy, found '{'other'") !=
        std::string::npos);
  std::string shape = whole;
  shape.replace(shape.find("(2, 3)"), 6, "(2,-3)");
  CHECK(refusal(shape).find("expected a header with descr, fortran_order and shape") != std::string::npos);
  std::string huge = whole;
  huge.replace(huge.find("(2, 3), }         "), 18, "(4294967296,2**63)");
  CHECK(refusal(huge).find("expected a header with descr, fortran_order and shape") != std::string::npos);
  huge.replace(huge.find("(4294967296,2**63)"), 18, "(1<<62, 99999), } ");
  CHECK(refusal(huge).find("expected a header with descr, fortran_order and shape") != std::string::npos);
  huge.replace(huge.find("(1<<62, 99999), } "), 18, "(5000000000000,)} ");
  CHECK(refusal(huge).find("expected an array of shape [5000000000000]") != std::string::npos);
  // No values at all, but steps between them that no tensor can have.
  const std::string sizes = "(0, 4611686018427387904, 4611686018427387904), }";
  std::string hollow = whole.substr(0, 128);
  hollow.replace(hollow.find("(2, 3)"), sizes.size(), sizes);
  CHECK(refusal(hollow).find("expected an array of shape [0, 4611686018427387904, 4611686018427387904]") !=
        std::string::npos);
}

TEST_CASE("dtypes that tensors lack are refused with a remedy") {
  CHECK(refusal(golden("texts")) ==
        "accel[0/1] load_npy: expected an array of bool, integers, floating or complex numbers in array.npy, found "
        "dtype '<U2'; convert it before it is saved, as in numpy.save(file, array.astype(numpy.float32))");
  CHECK(refusal(golden("dates")).find("found dtype '<M8[D]';") != std::string::npos);
  CHECK(refusal(golden("records")).find("expected an array of numbers in array.npy, found records: '[(") !=
        std::string::npos);
}

TEST_CASE("archives that are none, damaged or hold something else are refused") {
  CHECK(npz_refusal("plain text, long enough") ==
        "accel[0/1] load_npz: expected a .npz file, which is a zip file in arrays.npz, found that: Not a zip archive; "
        "save it again with numpy.savez");
  std::string damaged = golden("stored.npz");
  damaged[damaged.find("NUMPY") + 200] ^= 1;
  CHECK(npz_refusal(damaged) ==
        "accel[0/1] load_npz: expected a whole member in arrays.npz (x.npy), found CRC error; save it again with "
        "numpy.savez");
  std::string renamed = golden("stored.npz");
  for (std::size_t at = 0; (at = renamed.find("y.npy", at)) != std::string::npos;) renamed.replace(at, 5, "y.txt");
  CHECK(npz_refusal(renamed) ==
        "accel[0/1] load_npz: expected members whose names end with .npy in arrays.npz (y.txt), found another one; "
        "take it out of the archive, or save it as an array");
  CHECK(npz_refusal(golden("stored.npz").substr(0, 300)).find("expected a .npz file") != std::string::npos);
}

TEST_CASE("files that are not there are refused by name, and tensors that NumPy lacks by dtype") {
  const TemporaryFolder folder;
  CHECK(error_of<accel::DataError>([&] { (void)load_npz(folder / "none.npz"); }, folder.path()) ==
        "accel[0/1] load_npz: expected a file that can be read in none.npz, found No such file or directory; check the "
        "path");
  CHECK(error_of<accel::DataError>([&] { (void)load_npy(folder.path()); }).find("found a directory;") !=
        std::string::npos);
  CHECK(error_of<accel::DataError>([&] { (void)load_npy(folder.write("empty.npy", "")); }, folder.path()) ==
        "accel[0/1] load_npy: expected data in empty.npy, found an empty file; write it again");
  CHECK(error_of<accel::DataError>([&] { save_npy(folder / "none/a.npy", grid()); }, folder.path()) ==
        "accel[0/1] save_npy: expected to write a file in none/a.npy, found that it cannot be written: No such file or "
        "directory; check the folder, its permissions and the free space");
  CHECK(error_of<accel::DataError>(
            [&] {
              save_npz(folder / "none/a.npz", {{"a", grid()}});
            },
            folder.path())
            .find("expected to write a file in none/a.npz, found that it cannot be written:") != std::string::npos);
  CHECK(error_of<accel::UsageError>([&] { save_npy(folder / "a.npy", grid().to(at::kBFloat16)); }) ==
        "accel[0/1] save_npy: expected a tensor of a dtype that NumPy has, found BFloat16; convert it, as in "
        "tensor.to(at::kFloat)");
  CHECK(error_of<accel::UsageError>([&] { save_npy(folder / "a.npy", at::Tensor()); }) ==
        "accel[0/1] save_npy: expected dense tensors, found an undefined one; convert it, as in tensor.to_dense()");
  CHECK_FALSE(std::filesystem::exists(folder / "a.npy"));
}
