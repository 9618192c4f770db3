#include "model/model_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/ids.h"
#include "base/json.h"

namespace pocketfleet {
namespace {

namespace fs = std::filesystem;

// A web of addresses and what they hold.
struct Web {
  std::map<std::string, std::string> pages;
  std::vector<std::string> asked;
  std::mutex mutex;
};

class WebSource final : public DownloadSource {
 public:
  explicit WebSource(Web& web) : web_(web) {}
  Result<SourceReply> get(const SourceRequest& request, SourceSink& sink, const CancelToken&) override {
    std::string bytes;
    SourceReply reply;
    {
      const std::lock_guard lock(web_.mutex);
      web_.asked.push_back(request.url);
      const auto page = web_.pages.find(request.url);
      reply.status = page == web_.pages.end() ? 404 : 200;
      if (page != web_.pages.end()) bytes = page->second;
    }
    reply.size_bytes = bytes.size();
    reply.validator = "\"x\"";
    if (sink.begin(reply)) sink.write(bytes);
    return reply;
  }

 private:
  Web& web_;
};

class Store : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / make_id("model-store-test-");
    store_ = std::make_unique<ModelStore>(folder_.string());
    tools_.make_source = [this] { return std::make_unique<WebSource>(web_); };
    tools_.pause = [](int64_t, const CancelToken&) {};
    tools_.free_bytes = [](const std::string&) -> Result<uint64_t> { return uint64_t{1} << 40; };
    hub_.endpoint = "https://hub.example";
    list({{"guard-Q4_0.gguf", "four"}, {"guard-Q8_0-00001-of-00002.gguf", "one"}, {"guard-Q8_0-00002-of-00002.gguf", "two"}});
  }
  void TearDown() override { fs::remove_all(folder_); }

  void list(const std::vector<std::pair<std::string, std::string>>& files) {
    Json items = Json::array();
    for (const auto& [name, bytes] : files) {
      items.push_back({{"type", "file"}, {"path", name}, {"size", bytes.size()}});
      web_.pages["https://hub.example/acme/guard/resolve/main/" + name] = bytes;
    }
    web_.pages["https://hub.example/api/models/acme/guard/tree/main?recursive=true"] = dump_json(items);
  }
  Result<StoredModel> pull(const std::string& reference) {
    return store_->pull(*parse_reference(reference), hub_, 1, {}, tools_, [](const PullProgress&) {});
  }

  fs::path folder_;
  Web web_;
  HubAddress hub_;
  DownloadTools tools_;
  std::unique_ptr<ModelStore> store_;
};

TEST_F(Store, APulledModelIsFoundAgainWithoutTheNetwork) {
  const auto pulled = pull("hf:acme/guard:Q4_0");
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(*read_file(pulled->path, 100), "four");
  web_.pages.clear();
  web_.asked.clear();
  const auto found = store_->find("hf:acme/guard:Q4_0");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->path, pulled->path);
  EXPECT_EQ(found->files.front().name, "guard-Q4_0.gguf");
  EXPECT_TRUE(web_.asked.empty());
  EXPECT_FALSE(store_->find("hf:acme/guard:Q8_0"));
}

TEST_F(Store, ThePartsOfAModelLieBesideOneAnotherUnderTheirNames) {
  const auto pulled = pull("hf:acme/guard:Q8_0");
  ASSERT_TRUE(pulled) << pulled.error().message;
  ASSERT_EQ(pulled->files.size(), 2u);
  EXPECT_EQ(*read_file(pulled->path, 100), "one");
  EXPECT_EQ(*read_file(fs::path(pulled->path).parent_path() / "guard-Q8_0-00002-of-00002.gguf", 100), "two");
}

TEST_F(Store, AnAddressIsFetchedAsItIs) {
  web_.pages["https://files.example/a/model.gguf?signed=1"] = "bytes";
  const auto pulled = pull("https://files.example/a/model.gguf?signed=1");
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(fs::path(pulled->path).filename(), "model.gguf");
  EXPECT_EQ(*read_file(pulled->path, 100), "bytes");
}

TEST_F(Store, WhatIsThereIsNotFetchedTwiceAndSharedFilesStay) {
  ASSERT_TRUE(pull("hf:acme/guard:Q4_0"));
  web_.pages["https://files.example/same.gguf"] = "four";
  ASSERT_TRUE(pull("https://files.example/same.gguf"));
  EXPECT_EQ(store_->list().size(), 2u);
  EXPECT_EQ(*store_->remove("hf:acme/guard:Q4_0"), 0u) << "the other model has the same bytes";
  EXPECT_TRUE(store_->find("https://files.example/same.gguf"));
  EXPECT_EQ(*store_->remove("https://files.example/same.gguf"), 4u);
  EXPECT_TRUE(store_->list().empty());
  EXPECT_FALSE(store_->remove("https://files.example/same.gguf"));
}

TEST_F(Store, VerifyingFindsWhatChangedOnTheDisk) {
  const auto pulled = pull("hf:acme/guard:Q4_0");
  ASSERT_TRUE(pulled);
  EXPECT_TRUE(store_->verify(*pulled, {})->empty());
  ASSERT_TRUE(write_file_atomic(fs::canonical(pulled->path).string(), "fouR"));
  EXPECT_EQ(*store_->verify(*pulled, {}), (std::vector<std::string>{"guard-Q4_0.gguf"}));
  EXPECT_FALSE(store_->find("hf:acme/guard:Q4_0")) << "a damaged file is not served";
  EXPECT_TRUE(pull("hf:acme/guard:Q4_0"));
}

TEST_F(Store, WhatTheHubDoesNotHaveIsSaid) {
  EXPECT_EQ(pull("hf:acme/other").error().code, ErrorCode::kNotFound);
  const auto none = pull("hf:acme/guard:Q5_K_M");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("guard-Q4_0.gguf"), std::string::npos);
}

TEST(ModelHub, TheListOfFilesIsReadAndWhatLeavesTheFolderIsNot) {
  const auto files = parse_hub_files(
      R"([{"type":"directory","path":"x"},{"type":"file","path":"a.gguf","size":5,"lfs":{"oid":")" + std::string(64, 'a') +
      R"(","size":5}},{"type":"file","path":"../b.gguf","size":1},{"type":"file","path":"/etc/x","size":1}])");
  ASSERT_TRUE(files) << files.error().message;
  ASSERT_EQ(files->size(), 1u);
  EXPECT_EQ((*files)[0].sha256, std::string(64, 'a'));
  EXPECT_EQ((*files)[0].size_bytes, 5u);
  EXPECT_FALSE(parse_hub_files("{}"));
  EXPECT_FALSE(parse_hub_files("[5]"));
  EXPECT_FALSE(parse_hub_files("<html>"));
}

TEST(ModelHub, AddressesAreEncoded) {
  HubAddress hub;
  hub.endpoint = "https://hub.example";
  const ModelReference reference = *parse_reference("hf:acme/guard@v1:a b.gguf");
  EXPECT_EQ(hub_file_url(hub, reference, "sub/a b#1.gguf"), "https://hub.example/acme/guard/resolve/v1/sub/a%20b%231.gguf");
}

}  // namespace
}  // namespace pocketfleet
