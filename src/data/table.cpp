#include <accel/table.hpp>

#include "core/message.hpp"
#include "runtime/session.hpp"

#include <ATen/ops/cat.h>

namespace accel {

at::Tensor Table::matrix(const std::vector<std::string>& names) const {
  std::vector<at::Tensor> columns;
  for (const std::string& name : names) {
    const auto found = numbers.find(name);
    if (found == numbers.end()) {
      std::string known;
      for (const auto& [key, column] : numbers) known += (known.empty() ? "" : ", ") + key;
      detail::job_usage_error("Table::matrix", detail::cat("expected a column of numbers, found ", "\"", name, "\"",
                                                           "; there are: ", known));
    }
    const at::Tensor& column = found->second;
    columns.push_back(column.dim() == 1 ? column.unsqueeze(1) : column);
  }
  if (columns.empty())
    detail::job_usage_error("Table::matrix", "expected names of columns, found none; name them in the order you want");
  return at::cat(columns, 1);
}

}  // namespace accel
