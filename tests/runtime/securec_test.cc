// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <securec.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <string>

namespace {

constexpr size_t kTooMuch = SECUREC_MEM_MAX_LEN + 1;

std::string Bytes(const char* at, size_t count) { return {at, count}; }

TEST(Securec, CopiesOfMemory) {
  char from[] = "0123456789", to[11] = "##########";
  EXPECT_EQ(memcpy_s(to, 10, from, 4), EOK);
  EXPECT_STREQ(to, "0123######");
  EXPECT_EQ(memcpy_s(to, 10, from, 10), EOK);
  EXPECT_STREQ(to, from);
  EXPECT_EQ(memcpy_s(to, 10, to, 10), EOK);
  EXPECT_EQ(memcpy_s(to, 10, from, 0), EOK);
  EXPECT_STREQ(to, from);
  EXPECT_EQ(memcpy_s(to, 4, from, 5), ERANGE_AND_RESET);
  EXPECT_EQ(Bytes(to, 6), std::string("\0\0\0\0004"
                                      "5",
                                      6));
  EXPECT_EQ(memcpy_s(to + 4, 3, nullptr, 2), EINVAL_AND_RESET);
  EXPECT_EQ(Bytes(to + 4, 4), std::string("\0\0\0007", 4));
  EXPECT_EQ(memcpy_s(nullptr, 4, from, 2), EINVAL);
  EXPECT_EQ(memcpy_s(to, 0, from, 0), ERANGE);
  EXPECT_EQ(memcpy_s(to, kTooMuch, from, 1), ERANGE);
  EXPECT_EQ(memcpy_s(from, 5, from + 3, 4), EOVERLAP_AND_RESET);
  EXPECT_EQ(Bytes(from, 7), std::string("\0\0\0\0\00056", 7));
  EXPECT_EQ(memcpy_s(from, 3, from + 3, 3), EOK) << "they touch";
}

TEST(Securec, MovesAndFillsOfMemory) {
  char text[] = "0123456789";
  EXPECT_EQ(memmove_s(text + 2, 8, text, 6), EOK);
  EXPECT_STREQ(text, "0101234589");
  EXPECT_EQ(memmove_s(text, 3, text + 1, 4), ERANGE_AND_RESET);
  EXPECT_EQ(Bytes(text, 4), std::string("\0\0\0001", 4));
  EXPECT_EQ(memmove_s(nullptr, 3, text, 1), EINVAL);
  EXPECT_EQ(memmove_s(text, 3, nullptr, 1), EINVAL_AND_RESET);
  EXPECT_EQ(memset_s(text, 10, 'x', 2), EOK);
  EXPECT_EQ(memset_s(text + 2, 3, 'y', 4), ERANGE_AND_RESET);
  EXPECT_EQ(Bytes(text, 6), "xxyyy3");
  EXPECT_EQ(memset_s(nullptr, 3, 0, 1), EINVAL);
  EXPECT_EQ(memset_s(text, 0, 0, 0), ERANGE);
  EXPECT_EQ(memset_s(text, kTooMuch, 0, 1), ERANGE);
}

TEST(Securec, CopiesOfTexts) {
  char to[6] = "#####";
  EXPECT_EQ(strcpy_s(to, sizeof to, "12345"), EOK);
  EXPECT_STREQ(to, "12345");
  EXPECT_EQ(strcpy_s(to, sizeof to, to), EOK);
  EXPECT_EQ(strcpy_s(to, sizeof to, "123456"), ERANGE_AND_RESET);
  EXPECT_EQ(Bytes(to, 3), std::string("\00023", 3));
  EXPECT_EQ(strcpy_s(to, 1, ""), EOK);
  to[0] = 'a';
  EXPECT_EQ(strcpy_s(to, sizeof to, nullptr), EINVAL_AND_RESET);
  EXPECT_STREQ(to, "");
  EXPECT_EQ(strcpy_s(nullptr, 6, "1"), EINVAL);
  EXPECT_EQ(strcpy_s(to, 0, "1"), ERANGE);
  char text[] = "0123456";
  EXPECT_EQ(strcpy_s(text, sizeof text, text + 4), EOK) << "source and copy touch";
  EXPECT_STREQ(text, "456");
  char overlapping[] = "0123456";
  EXPECT_EQ(strcpy_s(overlapping, sizeof overlapping, overlapping + 2), EOVERLAP_AND_RESET);
  EXPECT_STREQ(overlapping, "");

  const char unended[3] = {'a', 'b', 'c'};
  EXPECT_EQ(strncpy_s(to, sizeof to, unended, 3), EOK);
  EXPECT_STREQ(to, "abc");
  EXPECT_EQ(strncpy_s(to, sizeof to, "12345678", 5), EOK);
  EXPECT_STREQ(to, "12345");
  EXPECT_EQ(strncpy_s(to, sizeof to, "12", 100), EOK);
  EXPECT_STREQ(to, "12");
  EXPECT_EQ(strncpy_s(to, sizeof to, "123456", 6), ERANGE_AND_RESET);
  EXPECT_STREQ(to, "");
  EXPECT_EQ(strncpy_s(to, sizeof to, "x", kTooMuch), ERANGE_AND_RESET);
  EXPECT_EQ(strncpy_s(to, sizeof to, "x", 0), EOK);
  EXPECT_STREQ(to, "");
}

TEST(Securec, AppendedTexts) {
  char to[8] = "ab";
  EXPECT_EQ(strcat_s(to, sizeof to, "cd"), EOK);
  EXPECT_STREQ(to, "abcd");
  EXPECT_EQ(strncat_s(to, sizeof to, "efgh", 3), EOK);
  EXPECT_STREQ(to, "abcdefg");
  EXPECT_EQ(strcat_s(to, sizeof to, ""), EOK);
  EXPECT_EQ(strcat_s(to, sizeof to, "h"), ERANGE_AND_RESET);
  EXPECT_STREQ(to, "");
  char unended[3] = {'a', 'b', 'c'};
  EXPECT_EQ(strcat_s(unended, sizeof unended, "d"), EINVAL_AND_RESET);
  EXPECT_EQ(unended[0], '\0');
  char self[16] = "abc";
  EXPECT_EQ(strcat_s(self, sizeof self, self), EOVERLAP_AND_RESET);
  EXPECT_EQ(strcat_s(nullptr, 3, "x"), EINVAL);
  EXPECT_EQ(strcat_s(to, 0, "x"), ERANGE);
  EXPECT_EQ(strncat_s(to, sizeof to, nullptr, 1), EINVAL_AND_RESET);

  char list[] = "a,b;;c";
  char* rest = nullptr;
  EXPECT_STREQ(strtok_s(list, ",;", &rest), "a");
  EXPECT_STREQ(strtok_s(nullptr, ",;", &rest), "b");
  EXPECT_STREQ(strtok_s(nullptr, ",;", &rest), "c");
  EXPECT_EQ(strtok_s(nullptr, ",;", &rest), nullptr);
  EXPECT_EQ(strtok_s(list, nullptr, &rest), nullptr);
  EXPECT_EQ(strtok_s(list, ",", nullptr), nullptr);
}

TEST(Securec, PrintedTexts) {
  char to[6] = "#####";
  EXPECT_EQ(sprintf_s(to, sizeof to, "%d", 12345), 5);
  EXPECT_STREQ(to, "12345");
  EXPECT_EQ(sprintf_s(to, sizeof to, "%d", 123456), -1);
  EXPECT_STREQ(to, "");
  EXPECT_EQ(sprintf_s(nullptr, 6, "%d", 1), -1);
  EXPECT_EQ(sprintf_s(to, 0, "%d", 1), -1);

  EXPECT_EQ(snprintf_s(to, sizeof to, 5, "%d", 12345), 5);
  EXPECT_EQ(snprintf_s(to, sizeof to, 3, "%d", 123), 3);
  EXPECT_STREQ(to, "123");
  EXPECT_EQ(snprintf_s(to, sizeof to, 3, "%d", 12345678), -1) << "cut";
  EXPECT_STREQ(to, "123");
  EXPECT_EQ(snprintf_s(to, sizeof to, 6, "%d", 12345678), -1) << "does not fit";
  EXPECT_STREQ(to, "");
  EXPECT_EQ(snprintf_s(to, sizeof to, 100, "%d", 12), 2);
  EXPECT_EQ(snprintf_s(to, sizeof to, static_cast<size_t>(-1), "%d", 12345678), -1) << "cut";
  EXPECT_STREQ(to, "12345");
  EXPECT_EQ(snprintf_s(to, sizeof to, kTooMuch, "%d", 1), -1);
  EXPECT_STREQ(to, "");
  EXPECT_EQ(snprintf_s(nullptr, 6, 5, "%d", 1), -1);

  EXPECT_EQ(snprintf_truncated_s(to, sizeof to, "%d", 12345678), 5);
  EXPECT_STREQ(to, "12345");
  EXPECT_EQ(snprintf_truncated_s(to, sizeof to, "%d", 12), 2);
  EXPECT_EQ(snprintf_truncated_s(to, 0, "%d", 12), -1);
}

TEST(Securec, ScannedTexts) {
  int number = 0;
  long long wide = 0;
  unsigned char tiny = 0;
  float real = 0;
  double real2 = 0;
  char word[6] = {}, letters[3] = {}, set[8] = {};
  EXPECT_EQ(sscanf_s("  12 words x 0x1f/2.5,-3e2", "%d %s %c %hhx/%f,%lf", &number, word, sizeof word, letters,
                     size_t{1}, &tiny, &real, &real2),
            6);
  EXPECT_EQ(number, 12);
  EXPECT_STREQ(word, "words");
  EXPECT_EQ(letters[0], 'x');
  EXPECT_EQ(tiny, 0x1f);
  EXPECT_EQ(real, 2.5F);
  EXPECT_EQ(real2, -300.0);
  int at = 0;
  EXPECT_EQ(sscanf_s("key-1=987654321012 %", "%7[^=]=%lld %%%n", set, sizeof set, &wide, &at), 2);
  EXPECT_STREQ(set, "key-1");
  EXPECT_EQ(wide, 987654321012LL);
  EXPECT_EQ(at, 20);
  EXPECT_EQ(sscanf_s("123456", "%2d%*2d%d", &number, &at), 2);
  EXPECT_EQ(number, 12);
  EXPECT_EQ(at, 56);
  EXPECT_EQ(sscanf_s("a]b", "%[]a]", set, sizeof set), 1);
  EXPECT_STREQ(set, "a]");
  EXPECT_EQ(sscanf_s("abz", "%[a-c]", set, sizeof set), 1);
  EXPECT_STREQ(set, "ab");
  EXPECT_EQ(sscanf_s("xyz", "%2c", letters, size_t{2}), 1);
  EXPECT_EQ(Bytes(letters, 2), "xy");

  // What does not fit ends the call.
  EXPECT_EQ(sscanf_s("7 longer 8", "%d %s %d", &number, word, sizeof word, &at), 1);
  EXPECT_EQ(number, 7);
  EXPECT_STREQ(word, "");
  EXPECT_EQ(at, 56);
  EXPECT_EQ(sscanf_s("longer", "%5s", word, sizeof word), 1);
  EXPECT_STREQ(word, "longe");
  EXPECT_EQ(sscanf_s("xyz", "%3c", letters, size_t{2}), 0);
  EXPECT_EQ(sscanf_s("x", "%s", word, size_t{0}), 0);
  EXPECT_EQ(sscanf_s("x", "%s", nullptr, size_t{4}), 0);

  EXPECT_EQ(sscanf_s("none", "%d", &number), 0);
  EXPECT_EQ(sscanf_s("", "%d", &number), -1);
  EXPECT_EQ(sscanf_s("  ", "%s", word, sizeof word), -1);
  EXPECT_EQ(sscanf_s("a", "b"), 0);
  EXPECT_EQ(sscanf_s("1", "%d %d", &number, &at), 1);
  EXPECT_EQ(sscanf_s(nullptr, "%d", &number), -1);
  EXPECT_EQ(sscanf_s("1", nullptr), -1);
  EXPECT_EQ(sscanf_s("1", "%"), -1);
  EXPECT_EQ(sscanf_s("1", "%["), -1);
  EXPECT_EQ(sscanf_s("1", "%99999999999999999999d", &number), -1);
}

TEST(Securec, ScannedFiles) {
  std::string text = "12 words x,0x1f 7 rest longer 8 ";
  FILE* const file = fmemopen(text.data(), text.size(), "r");
  ASSERT_NE(file, nullptr);
  int number = 0, hex = 0, at = 0;
  char word[6] = {}, letter[1] = {}, set[4] = {};
  EXPECT_EQ(fscanf_s(file, "%d %s %c,%x%n", &number, word, sizeof word, letter, size_t{1}, &hex, &at), 4);
  EXPECT_EQ(number, 12);
  EXPECT_STREQ(word, "words");
  EXPECT_EQ(letter[0], 'x');
  EXPECT_EQ(hex, 0x1f);
  EXPECT_EQ(at, 15);
  // What does not match is there for the next call.
  EXPECT_EQ(fscanf_s(file, "%d %d", &number, &hex), 1);
  EXPECT_EQ(number, 7);
  EXPECT_EQ(fscanf_s(file, "%3[a-s]%*s", set, sizeof set), 1);
  EXPECT_STREQ(set, "res");
  EXPECT_EQ(fscanf_s(file, "%s %d", word, sizeof word, &hex), 0) << "does not fit";
  EXPECT_STREQ(word, "");
  EXPECT_EQ(fscanf_s(file, "%*s %d", &hex), 1);
  EXPECT_EQ(hex, 8);
  EXPECT_EQ(fscanf_s(file, "%d", &hex), -1) << "the end";
  EXPECT_EQ(fscanf_s(nullptr, "%d", &hex), -1);
  EXPECT_EQ(fscanf_s(file, nullptr), -1);
  EXPECT_EQ(std::fclose(file), 0);
}

TEST(Securec, WideCharacters) {
  wchar_t from[] = L"0123456789", to[6] = L"#####";
  EXPECT_EQ(wmemcpy_s(to, 6, from, 3), EOK);
  EXPECT_EQ(std::wstring(to), L"012##");
  EXPECT_EQ(wmemcpy_s(to, 2, from, 3), ERANGE_AND_RESET);
  EXPECT_EQ(std::wstring(to, 4), std::wstring(L"\0\0"
                                              L"2#",
                                              4))
      << "destMax counts characters";
  EXPECT_EQ(wmemcpy_s(to, 0, from, 0), ERANGE);
  EXPECT_EQ(wmemcpy_s(to, SECUREC_WCHAR_MEM_MAX_LEN + 1, from, 1), ERANGE);
  EXPECT_EQ(wmemcpy_s(to, SIZE_MAX, from, 1), ERANGE);
  EXPECT_EQ(wmemcpy_s(to, 6, from, SIZE_MAX), ERANGE_AND_RESET) << "and not a product that wraps round";
  EXPECT_EQ(wmemcpy_s(nullptr, 6, from, 1), EINVAL);
  EXPECT_EQ(wmemcpy_s(from, 5, from + 1, 3), EOVERLAP_AND_RESET);
  std::wmemcpy(from, L"0123456789", 10);
  EXPECT_EQ(wmemmove_s(from + 1, 9, from, 8), EOK);
  EXPECT_EQ(std::wstring(from), L"0012345679");
  EXPECT_EQ(wmemmove_s(from, 1, from, 2), ERANGE_AND_RESET);

  EXPECT_EQ(wcscpy_s(to, 6, L"12345"), EOK);
  EXPECT_EQ(std::wstring(to), L"12345");
  EXPECT_EQ(wcscpy_s(to, 5, L"12345"), ERANGE_AND_RESET);
  EXPECT_EQ(std::wstring(to), L"");
  EXPECT_EQ(wcscpy_s(to, 6, nullptr), EINVAL_AND_RESET);
  EXPECT_EQ(wcscpy_s(to, SECUREC_WCHAR_STRING_MAX_LEN + 1, L""), ERANGE);
  EXPECT_EQ(wcsncpy_s(to, 4, L"12345", 3), EOK);
  EXPECT_EQ(std::wstring(to), L"123");
  EXPECT_EQ(wcsncpy_s(to, 4, L"12345", 4), ERANGE_AND_RESET);
  EXPECT_EQ(wcscpy_s(to, 6, L"ab"), EOK);
  EXPECT_EQ(wcscat_s(to, 6, L"cde"), EOK);
  EXPECT_EQ(std::wstring(to), L"abcde");
  EXPECT_EQ(wcscat_s(to, 6, L"f"), ERANGE_AND_RESET);
  EXPECT_EQ(wcscpy_s(to, 6, L"ab"), EOK);
  EXPECT_EQ(wcsncat_s(to, 6, L"cdef", 2), EOK);
  EXPECT_EQ(std::wstring(to), L"abcd");
  EXPECT_EQ(wcsncat_s(to, 6, to + 1, 2), EOVERLAP_AND_RESET);

  wchar_t list[] = L"a,b";
  wchar_t* rest = nullptr;
  EXPECT_EQ(std::wstring(wcstok_s(list, L",", &rest)), L"a");
  EXPECT_EQ(std::wstring(wcstok_s(nullptr, L",", &rest)), L"b");
  EXPECT_EQ(wcstok_s(nullptr, L",", &rest), nullptr);
  EXPECT_EQ(wcstok_s(nullptr, L",", nullptr), nullptr);

  EXPECT_EQ(swprintf_s(to, 6, L"%d", 12345), 5);
  EXPECT_EQ(std::wstring(to), L"12345");
  EXPECT_EQ(swprintf_s(to, 6, L"%d", 123456), -1);
  EXPECT_EQ(std::wstring(to), L"");
  EXPECT_EQ(swprintf_s(nullptr, 6, L"%d", 1), -1);
  EXPECT_EQ(swprintf_s(to, 0, L"%d", 1), -1);
  EXPECT_EQ(swprintf_s(to, 6, nullptr), -1);
}

}  // namespace
