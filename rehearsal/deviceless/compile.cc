// Compiles an HLO module for a GPU that is not there: compile TARGET HLO, where TARGET is a GpuTargetConfigProto as text
// and HLO an HloModuleProto. XLA writes the PTX to the folder of --xla_dump_to in XLA_FLAGS and calls ptxas itself.
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "google/protobuf/text_format.h"
#include "xla/debug_options_flags.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_module_group.h"
#include "xla/service/compiler.h"
#include "xla/service/hlo.pb.h"
#include "xla/stream_executor/device_description.pb.h"
#include "xla/stream_executor/platform_manager.h"

static std::string Read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

static int Fail(const std::string& what) {
  std::cerr << "compile: " << what << "\n";
  return 1;
}

int main(int count, char** arguments) {
  if (count != 3) return Fail("usage: compile TARGET HLO");
  stream_executor::GpuTargetConfigProto target;
  if (!google::protobuf::TextFormat::ParseFromString(Read(arguments[1]), &target)) return Fail("no target");
  xla::HloModuleProto hlo;
  if (!hlo.ParseFromString(Read(arguments[2]))) return Fail("no HLO module");

  auto platform = stream_executor::PlatformManager::PlatformWithName("CUDA");
  if (!platform.ok()) return Fail(platform.status().ToString());
  auto compiler = xla::Compiler::GetForPlatform(*platform);
  if (!compiler.ok()) return Fail(compiler.status().ToString());
  auto config = xla::HloModule::CreateModuleConfigFromProto(hlo, xla::GetDebugOptionsFromFlags());
  if (!config.ok()) return Fail(config.status().ToString());
  auto module = xla::HloModule::CreateFromProto(hlo, *config);
  if (!module.ok()) return Fail(module.status().ToString());

  xla::AotCompilationOptions options((*platform)->id());
  options.set_target_config(xla::Compiler::TargetConfig(target));
  auto group = std::make_unique<xla::HloModuleGroup>(*std::move(module));
  auto made = (*compiler)->CompileAheadOfTime(std::move(group), options);
  return made.ok() ? 0 : Fail(made.status().ToString());
}
