#include "data/gzip_file.hpp"

// Beast's inflate is header-only: the library gets no further dependency for one file of digits.
#include <boost/beast/zlib/inflate_stream.hpp>
#include <boost/crc.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace accel::detail {
namespace {

namespace zlib = boost::beast::zlib;

// RFC 1952: ten bytes, optional fields by flags, deflate data, then CRC-32 and length of the content.
constexpr std::size_t kHeaderBytes = 10;
constexpr std::size_t kTrailerBytes = 8;
enum Flag : unsigned { kHeaderCrc = 2, kExtra = 4, kName = 8, kComment = 16 };

unsigned byte_at(const std::string& text, std::size_t at) {
  return static_cast<unsigned char>(text.at(at));
}

std::uint32_t little_endian(const std::string& text, std::size_t at) {
  return byte_at(text, at) | byte_at(text, at + 1) << 8 | byte_at(text, at + 2) << 16 | byte_at(text, at + 3) << 24;
}

std::string read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(std::strerror(errno));
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) throw std::runtime_error("it cannot be read to its end");
  return bytes;
}

std::size_t end_of_header(const std::string& bytes) {
  if (bytes.size() < kHeaderBytes + kTrailerBytes || byte_at(bytes, 0) != 0x1f || byte_at(bytes, 1) != 0x8b ||
      byte_at(bytes, 2) != 8)
    throw std::runtime_error("it is no gzip file");
  const unsigned flags = byte_at(bytes, 3);
  std::size_t at = kHeaderBytes;
  if (flags & kExtra) at += 2 + byte_at(bytes, at) + (byte_at(bytes, at + 1) << 8);
  for (const Flag text : {kName, kComment})
    if (flags & text) at = bytes.find('\0', at) + 1;
  if (flags & kHeaderCrc) at += 2;
  return at;
}

std::string inflate(const std::string& bytes, std::size_t first) {
  std::string content;
  std::array<char, 1 << 16> buffer;
  zlib::inflate_stream stream;
  zlib::z_params params;
  params.next_in = bytes.data() + first;
  params.avail_in = bytes.size() - kTrailerBytes - first;
  boost::system::error_code error;
  while (!error) {
    params.next_out = buffer.data();
    params.avail_out = buffer.size();
    stream.write(params, zlib::Flush::sync, error);
    content.append(buffer.data(), buffer.size() - params.avail_out);
  }
  if (error != zlib::error::end_of_stream) throw std::runtime_error("it is damaged: " + error.message());
  return content;
}

}  // namespace

std::string read_gzip(const std::string& path) {
  const std::string bytes = read_file(path);
  const std::size_t first = end_of_header(bytes);
  if (first == 0 || first + kTrailerBytes > bytes.size()) throw std::runtime_error("its header is damaged");
  std::string content = inflate(bytes, first);

  boost::crc_32_type crc;
  crc.process_bytes(content.data(), content.size());
  const std::size_t trailer = bytes.size() - kTrailerBytes;
  if (crc.checksum() != little_endian(bytes, trailer) ||
      static_cast<std::uint32_t>(content.size()) != little_endian(bytes, trailer + 4))
    throw std::runtime_error("it is damaged: its checksum does not match");
  return content;
}

}  // namespace accel::detail
